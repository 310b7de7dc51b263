// cli/rendezvous.h: the launchers of several machines agree who takes part in a job's next life.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "cli/job_place.h"

namespace danlu::cli {

/// From the start of the ranks to their end.
struct Life {
  int64_t number = 0;                 ///< how often the job has begun again
  int64_t first_rank = 0, world = 1;  ///< of this machine; of those that take part
  int64_t port = 0;                   ///< of machine 0, for the ranks
  std::string job = {};               ///< names the job, the same in every life
  std::string missing = {};           ///< who takes no part; empty: nobody
  /// While it is there, machine 0 knows that this launcher is.
  std::shared_ptr<const void> seat = {};
};

/// Kept by machine 0 as long as the job lasts: listens on a port, and lets machines go on together.
class Rendezvous {
 public:
  /// Errors: CommError if the port cannot be listened on.
  explicit Rendezvous(const JobPlace& place);
  /// Sends away who still waits.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Waits for the others at machine 0, which says how long: at the start half an hour, and for all
/// of them; after another life, `before`, as long as `place` says, and for as many as it needs.
/// Says whom it waits for where that takes long. Errors: CommError if machine 0 is not there, is
/// there no more, or too few came; UsageError if two launchers have one number, with the places of
/// both, or mean different jobs; what throw_interrupted throws after a signal.
Life meet_machines(const JobPlace& place, const Life& before);

/// A name for a job that no other has.
std::string new_job_name();

}  // namespace danlu::cli
