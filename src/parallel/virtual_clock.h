// parallel/virtual_clock.h: the time that ranks which are threads would take if each had a
// processor, and links, of its own.
//
// More threads than processors fill each other's waiting, so that wall time shows neither a
// pipeline's bubble nor what an exchange hides behind. Here a thread's clock goes on with the
// processor's time that the thread itself took, and an exchange ends when the later of its ranks
// has come, plus what a modelled link takes. What the transport does between threads is not
// counted.
//
// Modelled are: each rank's link to either side, one message at a time in each direction within a
// round of an exchange (Group::Round), in a fixed order; the next round travels while a sum is made
// of the last one. Not modelled: that different groups of a rank share its link; what it takes
// until activations that are elsewhere are back (layers/offload.h); that a thread beside the rank's
// own (parallel/background.h), which makes sums, would take the processor from it: they count as
// going on at once, as on devices with engines for exchanges.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace danlu::parallel {

/// Seconds of a processor that this thread has had (CLOCK_THREAD_CPUTIME_ID).
double thread_processor_seconds();

struct ModelledLink {
  double bytes_per_s = std::numeric_limits<double>::infinity();  ///< in each direction
  double latency_s = 0;
  double seconds(double bytes) const { return bytes / bytes_per_s; }
};

/// How virtual time goes on. With the defaults exchanges take no time.
struct VirtualTime {
  int64_t devices_per_node = std::numeric_limits<int64_t>::max();  ///< ranks, by their number
  ModelledLink node = {}, network = {};  ///< between ranks of a node, and of different ones
  /// The seconds that the calling thread has computed; ascends.
  double (*processor_seconds)() = thread_processor_seconds;

  const ModelledLink& between(int64_t rank, int64_t other) const {
    return rank / devices_per_node == other / devices_per_node ? node : network;
  }
};

/// What exchanges have cost a rank so far, in seconds. Exchanges of a few numbers count too.
struct ExchangeTimes {
  double modelled = 0;  ///< on links, by whichever of its threads
  double exposed = 0;   ///< of that, what the rank's own thread waited for
  double late = 0;      ///< that its own thread waited for ranks that came later
  /// Share of what went on links that computing hid.
  double overlap() const { return modelled > 0 ? 1 - exposed / modelled : 0; }
};

/// A moment on a clock, and how much of the time before it a link had.
struct Moment {
  double at = 0, on_links = 0;
};

/// One round of an exchange, as a rank sees it.
struct RoundTimes {
  double begin = 0;  ///< all that it exchanges with have come
  double left = 0;   ///< its links are free again
  double end = 0;    ///< what it receives is there
};

/// The clock of one thread of a rank: its own, or one beside.
class VirtualClock {
 public:
  /// A rank's own, which begins at 0. time outlives it.
  explicit VirtualClock(const VirtualTime& time);
  /// The clock of a thread beside this one's, which outlives neither. What that thread exchanges is
  /// counted with what this one does.
  std::unique_ptr<VirtualClock> beside() const;

  /// The clock of this thread; nullptr: it has only the time of the wall.
  static VirtualClock* of_thread();
  /// Makes a clock this thread's.
  class InForce {
   public:
    explicit InForce(VirtualClock* clock);
    ~InForce();
    InForce(const InForce&) = delete;
    InForce& operator=(const InForce&) = delete;

   private:
    VirtualClock* before_;
  };

  const VirtualTime& time() const { return time_; }
  // Only the thread that carries the clock calls it.
  double now() const { return shift_ + time_.processor_seconds(); }
  /// Goes on from `moment`, whatever the thread did since it last read the clock.
  void go_on_from(double moment) { shift_ = moment - time_.processor_seconds(); }
  /// Begins something that was given at `given`.
  void begin_job(double given);
  /// When that was over.
  Moment end_job() const { return {now(), on_links_}; }
  /// Waits for what another thread of the rank did.
  void wait_for(const Moment& other);
  /// Waits for a round of an exchange.
  void wait_for(const RoundTimes& round);

  /// The exchanges of all threads of the rank.
  ExchangeTimes exchanges() const;

 private:
  struct Counts {
    std::mutex mutex;
    ExchangeTimes times;
  };
  void count_waiting(double seconds, double on_links);

  const VirtualTime& time_;
  std::shared_ptr<Counts> counts_;
  bool is_own_ = true;
  double shift_ = 0;
  double on_links_ = 0;  ///< of the job at hand
};

/// When a round ends for member `own` of a group. bytes[from][to]; ranks: of the members, for the
/// links between them; came[member]. Messages begin when both ends are there and their links free,
/// those to the next member first, then those to the one after, and so on.
RoundTimes time_round(const VirtualTime& time, const std::vector<int64_t>& ranks,
                      const std::vector<double>& came,
                      const std::vector<std::vector<double>>& bytes, size_t own);

}  // namespace danlu::parallel
