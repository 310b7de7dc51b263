#include "infer/engine.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "infer/asked.h"
#include "infer/drawings.h"
#include "infer/followers.h"
#include "infer/form_work.h"
#include "infer/live_request.h"
#include "infer/pass_parts.h"
#include "infer/predicted_drafts.h"
#include "infer/schedule.h"
#include "infer/shared_pages.h"
#include "infer/step.h"
#include "infer/turns.h"
#include "parallel/agree.h"

namespace danlu::infer {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;
/// Pictures of a pass that others join. One request's go through whatever their size.
constexpr int64_t kPassPatches = int64_t{1} << 15;
/// Logits after each token of a prompt are much memory: a vocabulary of 150,000 takes 0.6 MB.
constexpr int64_t kLogprobTokens = 128;

}  // namespace

class Engine::Impl {
 public:
  Impl(const models::CausalLM& model, EngineSettings settings, Followers* followers)
      : model_(model),
        settings_(fitting(settings, model.config())),
        followers_(followers),
        pages_(model, settings_, followers) {
    if (settings.predicted_tokens > 0 && (model.config().num_predictions() == 0 || has_peers()))
      throw InternalError("[engine] guesses come from a layer that this rank asks alone");
    const bool is_long_rope = model.config().rope.scaling == arch::RopeScaling::kLongRope;
    reads_whole_ = is_long_rope || settings.deterministic || model.config().encoder;
  }

  RequestHandle add(EngineRequest asked) {
    check_asked(asked, model_.config(), settings_, followers_ != nullptr, has_peers());
    auto live = std::make_unique<LiveRequest>();
    live->handle = next_handle_++;
    live->seen = asked.request.prompt;
    live->pictures =
        PromptPictures::of(model_.config(), std::ssize(live->seen), asked.request.pictures);
    live->named = names_.named(live->seen, live->pictures.get());
    live->limit = limit_of(asked.request);
    live->turn = turns_.enter(asked.group);
    live->asked = fitting(std::move(asked), model_.config());
    const RequestRank rank = live->rank();
    live->root = root_of(*live, model_.config());
    live->awaits_form = awaits_form(*live);
    ranks_[live->handle] = rank;
    return waiting_.emplace(rank, std::move(live)).first->first.handle;
  }

  RequestHandle fork(RequestHandle from, text::TokenId next) {
    if (settings_.max_pages > 0 || std::count(paused_.begin(), paused_.end(), from) == 0)
      throw InternalError("[engine] only what gave its logits in the last step goes on in forks");
    const LiveRequest& parent = *running_.at(ranks_.at(from));
    auto live = std::make_unique<LiveRequest>(parent);
    live->handle = next_handle_++;
    live->sequence = pages_.fork(parent.sequence);
    live->seen.push_back(next);
    live->named.push_back(next);
    const RequestRank rank = live->rank();
    ranks_[live->handle] = rank;
    return running_.emplace(rank, std::move(live)).first->first.handle;
  }

  void cancel(RequestHandle handle) {
    const auto found = ranks_.find(handle);
    if (found == ranks_.end()) return;
    forget(found->second);
    if (followers_ && !has_work()) followers_->rest();
  }

  void cancel_all() {
    while (!ranks_.empty()) cancel(ranks_.begin()->first);
  }

  bool has_work() const { return !ranks_.empty(); }

  std::vector<EngineOutput> step() {
    std::vector<EngineOutput> outputs;
    begun_.clear();
    for (const RequestHandle handle : std::exchange(paused_, {})) cancel(handle);
    const std::vector<PassPart> parts = plan(outputs);
    ++counts_.steps;
    const int64_t most = settings_.max_batched_tokens;
    for (const std::vector<PassPart>& pass : passes_of(parts, settings_.deterministic, most)) {
      const bool is_of_one = pass.size() == 1 && pass.front().tokens > most;
      if (is_of_one && !followers_ && !has_peers())
        compute_if_memory_suffices(pass, outputs);
      else
        compute(pass, outputs);
    }
    if (followers_ && !has_work()) followers_->rest();
    return outputs;
  }

  EngineCounts counts() const {
    EngineCounts counts = counts_;
    counts.running = std::ssize(running_);
    counts.waiting = std::ssize(waiting_);
    counts.pages_used = pages_.cache().pool().num_held();
    return counts;
  }
  const std::vector<RequestHandle>& begun() const { return begun_; }
  const EngineSettings& settings() const { return settings_; }

 private:
  int64_t limit_of(const Request& request) const {
    const int64_t window = model_.config().max_positions;
    const int64_t longest =
        std::ssize(request.prompt) + std::clamp<int64_t>(request.max_new_tokens, 0, kUnlimited);
    return std::min(
        {longest, window > 0 ? window : kUnlimited,
         settings_.max_pages > 0 ? settings_.max_pages * ops::kPageTokens : kUnlimited});
  }

  bool is_whole(const LiveRequest& live) const { return reads_whole_ || live.pictures; }

  RequestProgress progress_of(const LiveRequest& live, int64_t computed) const {
    return {.total = std::ssize(live.seen), .computed = computed, .is_whole = is_whole(live)};
  }

  /// Requests whose next token turns keys by other frequencies than those in the cache.
  void begin_outgrown_anew() {
    for (const auto& [rank, live] : running_) {
      if (!outgrows_cache(model_.config(), pages_.length(*live), std::ssize(live->seen))) continue;
      pages_.truncate(live->sequence, 0);
      live->places.clear();
      live->root = root_of(*live, model_.config());
    }
  }

  RequestProgress progress_of_running(const LiveRequest& live) const {
    RequestProgress progress = progress_of(live, pages_.length(live));
    progress.sits_out = live.awaits_form;
    progress.total += std::ssize(live.drafts);
    progress.own_pages = pages_.own_pages(live);
    progress.copies = pages_.cache().shares_page_begun(live.sequence) ? 1 : 0;
    return progress;
  }

  StepRoom room() const {
    const int64_t pages = settings_.max_pages > 0
                              ? settings_.max_pages - pages_.cache().pool().num_held()
                              : kUnlimited;
    return {settings_.max_sequences, settings_.max_batched_tokens, pages};
  }

  /// What the next pass computes; those that end without one go to `outputs`.
  std::vector<PassPart> plan(std::vector<EngineOutput>& outputs) {
    std::vector<PassPart> parts;
    std::vector<RequestProgress> progress;
    guess();
    if (settings_.form_work > 0) work_on_forms(outputs);
    begin_outgrown_anew();
    for (const auto& [rank, live] : running_) progress.push_back(progress_of_running(*live));
    const Schedule schedule = schedule_running(progress, room());
    for (int64_t i = 0; i < schedule.preempted; ++i) preempt();
    auto next = running_.begin();
    for (const int64_t tokens : schedule.tokens) add_part(parts, *(next++)->second, tokens);
    if (schedule.preempted == 0) admit_waiting(schedule.left, parts, outputs);
    return parts;
  }

  bool awaits_form(const LiveRequest& live) const {
    return settings_.form_work > 0 && live.asked.request.rules.constraint;
  }

  /// Requests whose form cannot be followed end.
  void work_on_forms(std::vector<EngineOutput>& outputs) {
    for (const FailedForm& failed :
         infer::work_on_forms(running_, waiting_, settings_.max_sequences, settings_.form_work)) {
      outputs.push_back(ended(*failed.live, FinishReason::kFailed));
      outputs.back().error = failed.error;
      forget(failed.live->rank());
    }
  }

  /// Only where guesses take nothing from other requests.
  void guess() {
    const bool predicts = settings_.predicted_tokens > 0;
    const int64_t most = predicts ? settings_.predicted_tokens : settings_.lookup.num_tokens,
                  running = std::ssize(running_);
    const bool is_able = most > 0 && !reads_whole_ && !pages_.keeps_states();
    const bool has_room = is_able && room().pages >= 2 * running &&
                          running * (most + 1) <= settings_.max_batched_tokens;
    for (const auto& [rank, live] : running_) {
      live->drafts.clear();
      const bool goes_on = pages_.length(*live) + 1 == std::ssize(live->seen);
      std::vector<text::TokenId> predicted = std::exchange(live->predicted, {});
      if (!has_room || !goes_on || !may_be_guessed(*live)) continue;
      live->drafts = predicts ? std::move(predicted)
                              : looked_up(live->seen, settings_.lookup, most_guesses(*live, most));
    }
  }
  static bool may_be_guessed(const LiveRequest& live) {
    return !live.pictures && !live.asked.pooling && !live.reads_all() && !live.asked.gives_logits &&
           !live.asked.request.rules.constraint;
  }
  static int64_t most_guesses(const LiveRequest& live, int64_t most) {
    return std::min(most, live.limit - std::ssize(live.seen) - 1);
  }

  /// Lets the model's own layer guess the tokens that follow those which the pass has confirmed.
  void predict(const std::vector<ComputedPart>& computed, const at::Tensor& hidden_NH) {
    std::vector<PredictionInput> inputs;
    std::vector<LiveRequest*> asked;
    for (const ComputedPart& part : computed) {
      const auto rank = ranks_.find(part.handle);
      if (rank == ranks_.end()) continue;  // it has ended
      LiveRequest& live = *running_.at(rank->second);
      const int64_t length = pages_.length(live), count = length - part.first_place;
      if (live.pictures || live.asked.pooling || count <= 0) continue;
      const auto next = live.seen.begin() + part.first_place + 1;
      const bool goes_on = length + 1 == std::ssize(live.seen) && may_be_guessed(live);
      inputs.push_back({.sequence = live.sequence,
                        .first = part.first_place,
                        .first_row = part.first_row,
                        .next = {next, next + count},
                        .most = goes_on ? most_guesses(live, settings_.predicted_tokens) : 0,
                        .num_tokens = live.asked.request.num_tokens});
      asked.push_back(&live);
    }
    if (inputs.empty()) return;
    if (followers_) followers_->begin_prediction(inputs);
    std::vector<std::vector<text::TokenId>> drafts =
        predicted_drafts(model_, pages_.cache(), hidden_NH, inputs);
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->predicted = std::move(drafts[i]);
  }

  void add_part(std::vector<PassPart>& parts, LiveRequest& live, int64_t tokens) {
    if (!live.drafts.empty())
      live.drafts.resize(static_cast<size_t>(std::max<int64_t>(tokens - 1, 0)));
    if (live.wants_prompt_logprobs() && !is_whole(live)) tokens = std::min(tokens, kLogprobTokens);
    if (tokens > 0) parts.push_back({&live, tokens});
  }

  void preempt() {
    const auto last = std::prev(running_.end());
    LiveRequest& live = *last->second;
    pages_.remove(live.sequence);
    live.sequence = -1;
    live.places.clear();
    live.root = root_of(live, model_.config());
    live.prompt_logprobs.clear();
    live.pooled.clear();
    live.drafts.clear();
    live.predicted.clear();
    if (live.pictures) live.pictures->release();
    ++counts_.preemptions;
    waiting_.insert(running_.extract(last));
  }

  void admit_waiting(StepRoom room, std::vector<PassPart>& parts,
                     std::vector<EngineOutput>& outputs) {
    int64_t patches = 0;
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      const auto first = next++;
      LiveRequest& live = *first->second;
      if (!has_room_for_adapter(live)) return;
      if (live.asked.request.max_new_tokens <= 0 && !live.reads_all() && !live.asked.pooling) {
        outputs.push_back(ended(live, FinishReason::kLength));
        forget(first->first);
        continue;
      }
      if (live.awaits_form || is_read_for_another(live)) continue;
      const PrefixIndex::Found shared = pages_.beginning_of(live);
      if (pages_.is_being_computed(live, shared, running_)) continue;
      if (settings_.deterministic && !has_room_to_the_end(live)) return;
      const int64_t tokens = admit(progress_of(live, shared.tokens), pages_.idle_of(shared.pages),
                                   std::ssize(running_), room);
      if (tokens == 0) return;
      const int64_t own_patches = live.pictures ? live.pictures->patches() : 0;
      if (patches > 0 && own_patches > 0 && patches + own_patches > kPassPatches) return;
      patches += own_patches;
      if (!load_pictures(live, shared.tokens, outputs)) continue;
      begin(live, shared);
      running_.insert(waiting_.extract(first));
      add_part(parts, live, tokens);
    }
  }

  /// Who waits for it is overtaken by nobody: what runs would else go on for ever with its own.
  bool has_room_for_adapter(const LiveRequest& live) const {
    if (settings_.max_adapters == 0 || !live.asked.adapter) return true;
    return num_adapters(running_, live) <= settings_.max_adapters;
  }

  /// An answer that is begun is never begun anew, which would round otherwise.
  bool has_room_to_the_end(const LiveRequest& live) const {
    if (settings_.max_pages == 0) return true;
    int64_t pages = live.limit / ops::kPageTokens + 1;
    for (const auto& [rank, other] : running_) pages += other->limit / ops::kPageTokens + 1;
    return pages <= settings_.max_pages || running_.empty();
  }

  /// False: they cannot be read, and the request is over.
  bool load_pictures(LiveRequest& live, int64_t from, std::vector<EngineOutput>& outputs) {
    if (!live.pictures) return true;
    try {
      live.pictures->load(from);
      return true;
    } catch (const std::exception&) {  // too little memory as well: it is this request's alone
      outputs.push_back(ended(live, FinishReason::kFailed));
      outputs.back().error = std::current_exception();
      forget(live.rank());
      return false;
    }
  }

  void begin(LiveRequest& live, const PrefixIndex::Found& shared) {
    pages_.begin(live, shared);
    note_begun(live, shared.tokens);
  }

  void note_begun(LiveRequest& live, int64_t cached_tokens) {
    if (live.has_begun) return;
    live.has_begun = true;
    turns_.leave(live.asked.group, /*has_begun=*/true);
    begun_.push_back(live.handle);
    live.cached_tokens = cached_tokens;
    counts_.prompt_tokens += live.prompt_size();
    if (!pages_.shares()) return;
    counts_.prefix_queried += live.prompt_size();
    counts_.prefix_hit += live.cached_tokens;
  }

  /// is_sound: others may begin with what it has computed.
  void forget(RequestRank rank, bool is_sound = true) {
    if (const auto found = running_.find(rank); found != running_.end()) {
      if (is_sound)
        pages_.note_last_page(*found->second);
      else
        pages_.discard(*found->second);
      pages_.remove(found->second->sequence);
      running_.erase(found);
    }
    if (const auto found = waiting_.find(rank); found != waiting_.end()) {
      if (!found->second->has_begun) turns_.leave(found->second->asked.group, /*has_begun=*/false);
      waiting_.erase(found);
    }
    ranks_.erase(rank.handle);
  }

  /// The layer that guesses keeps of the last token of a prompt what follows it, which is each
  /// choice's own.
  bool shares_among_choices() const { return settings_.predicted_tokens == 0; }

  /// Whether a choice beside it reads the prompt that this one waits for.
  bool is_read_for_another(const LiveRequest& live) const {
    if (live.asked.prompt_number == 0 || live.has_begun || !shares_among_choices()) return false;
    return std::any_of(running_.begin(), running_.end(), [&](const auto& item) {
      return item.second->is_choice_beside(live) && item.second->answered() == 0;
    });
  }

  bool has_room_for_choice(const LiveRequest& live) const {
    if (std::ssize(running_) >= settings_.max_sequences || !has_room_for_adapter(live) ||
        (settings_.deterministic && !has_room_to_the_end(live)))
      return false;
    int64_t pages = 1;  // as admit() keeps them
    for (const auto& [rank, other] : running_)
      pages += 1 + ops::pages_for(std::ssize(other->seen)) - ops::pages_for(pages_.length(*other));
    return pages <= room().pages;
  }

  /// The choices that wait for this prompt, which has been read, run from here on.
  std::vector<LiveRequest*> begin_choices_beside(const LiveRequest& read, bool has_logits) {
    std::vector<LiveRequest*> begun;
    if (read.asked.prompt_number == 0 || read.answered() > 0 || !shares_among_choices())
      return begun;
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      const auto one = next++;
      LiveRequest& live = *one->second;
      if (!live.is_choice_beside(read) || live.has_begun || live.awaits_form ||
          (!has_logits && !live.takes_likeliest()))
        continue;
      if (!has_room_for_choice(live)) break;
      live.sequence = pages_.fork(read.sequence);
      live.places = read.places;
      live.prompt_logprobs = read.prompt_logprobs;
      note_begun(live, live.prompt_size());
      running_.insert(waiting_.extract(one));
      begun.push_back(&live);
    }
    return begun;
  }

  EngineOutput ended(const LiveRequest& live, FinishReason reason) const {
    return {.handle = live.handle, .cached_tokens = live.cached_tokens, .finished = reason};
  }

  /// A pass of one request whose part no setting bounds: the request ends where the pass takes more
  /// memory than there is, and others go on.
  void compute_if_memory_suffices(const std::vector<PassPart>& pass,
                                  std::vector<EngineOutput>& outputs) {
    const LiveRequest& live = *pass.front().live;
    const RequestRank rank = live.rank();
    try {
      return compute(pass, outputs);
    } catch (...) {
      if (current_error().code() != ExitCode::kMemory || !ranks_.contains(rank.handle)) throw;
    }
    outputs.push_back(ended(live, FinishReason::kFailed));
    outputs.back().error = std::make_exception_ptr(DataError(
        tr("[engine] a prompt that cannot be read in parts has {} tokens, which take more "
           "memory at once than there is",
           pass.front().tokens),
        tr("ask with fewer or smaller pictures, or with a shorter text")));
    forget(rank, /*is_sound=*/false);
  }

  void compute(const std::vector<PassPart>& parts, std::vector<EngineOutput>& outputs) {
    const std::vector<StepInput> inputs = inputs_of(parts, pages_.cache());
    const std::vector<ComputedPart> computed = computed_by(parts, pages_.cache());
    if (followers_) followers_->begin_pass(inputs);
    const StepResult result = infer::step(model_, pages_.cache(), inputs);
    const at::Tensor& logits_RV = result.logits_RV;
    std::vector<int64_t> last_rows(parts.size(), -1);
    int64_t row = 0, token = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      LiveRequest& live = *parts[i].live;
      if (live.drafts.empty()) pages_.note_full_pages(live);
      const bool reaches_end = pages_.length(live) == std::ssize(live.seen);
      const int64_t first_token = std::exchange(token, token + parts[i].tokens);
      if (live.asked.pooling) {
        pool_hidden(*live.asked.pooling, result.hidden_NH.narrow(0, first_token, parts[i].tokens),
                    live.pooled);
        if (reaches_end) outputs.push_back(embedded(live));
      } else if (live.wants_prompt_logprobs()) {
        note_prompt_logprobs(live, pages_.length(live) - parts[i].tokens, logits_RV, row,
                             parts[i].tokens);
        row += parts[i].tokens;
        if (reaches_end) last_rows[i] = row - 1;
      } else if (!live.drafts.empty()) {
        last_rows[i] = std::exchange(row, row + parts[i].tokens);
      } else if (reaches_end) {
        last_rows[i] = row++;
      }
    }
    std::vector<Drawing> drawings;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (last_rows[i] >= 0) add_drawings(*parts[i].live, result, last_rows[i], drawings);
    }
    std::vector<DrawnToken> drawn = drawn_from(result, drawings, model_.dtype());
    if (has_peers()) agree(model_.mesh().tensor(), drawn);
    for (size_t i = 0; i < drawings.size(); ++i) {
      LiveRequest& live = *drawings[i].live;
      if (live.asked.gives_logits)
        outputs.push_back(paused(live, logits_RV, drawings[i].row));
      else
        accept_all(live, logits_RV, drawings[i].row, std::move(drawn[i]), outputs);
    }
    if (settings_.predicted_tokens > 0 && !reads_whole_) predict(computed, result.hidden_NH);
  }

  void add_drawings(LiveRequest& live, const StepResult& result, int64_t row,
                    std::vector<Drawing>& drawings) {
    drawings.push_back({&live, row});
    for (LiveRequest* const beside : begin_choices_beside(live, result.likeliest_R.empty()))
      drawings.push_back(Drawing::of_copy(*beside, result, row));
  }

  /// Ranks of the tensor axis that each have an engine see the same logits; unlike processors may
  /// still draw otherwise. Followers have none: they get what was drawn with the next pass.
  bool has_peers() const { return !followers_ && model_.mesh().tensor().size() > 1; }

  EngineOutput paused(LiveRequest& live, const at::Tensor& logits_RV, int64_t row) {
    if (live.pictures) live.pictures->release();
    const auto logits = answerable(logits_RV, static_cast<size_t>(row), live.asked.request);
    paused_.push_back(live.handle);
    return {.handle = live.handle,
            .cached_tokens = live.cached_tokens,
            .logits = {logits.begin(), logits.end()}};
  }

  /// The end of a request that asked for a vector.
  EngineOutput embedded(LiveRequest& live) {
    EngineOutput output = ended(live, FinishReason::kStop);
    output.embedding = mean_of_pooled(live);
    if (output.embedding.empty()) {
      output.finished = FinishReason::kFailed;
      output.error =
          std::make_exception_ptr(NumericError(tr("[engine] hidden states are no numbers")));
    }
    forget(live.rank(), !output.error);
    return output;
  }

  /// Takes the token of `row`, then those of the guesses' rows for as long as each guess is the
  /// token that was drawn.
  void accept_all(LiveRequest& live, const at::Tensor& logits_RV, int64_t row, DrawnToken drawn,
                  std::vector<EngineOutput>& outputs) {
    const std::vector<text::TokenId> drafts = std::exchange(live.drafts, {});
    counts_.guessed += std::ssize(drafts);
    for (size_t i = 0;; ++i) {
      outputs.push_back(accept(live, drawn));
      if (outputs.back().finished) return;  // the request is no more
      if (i == drafts.size() || *drawn.token != drafts[i]) break;
      ++counts_.guessed_right;
      drawn = draw(answerable(logits_RV, static_cast<size_t>(row) + i + 1, live.asked.request),
                   live, model_.dtype());
    }
    if (drafts.empty()) return;
    pages_.truncate(live.sequence, std::ssize(live.seen) - 1);
    pages_.note_full_pages(live);
  }

  EngineOutput accept(LiveRequest& live, const DrawnToken& drawn) {
    EngineOutput output{.handle = live.handle, .cached_tokens = live.cached_tokens};
    if (live.pictures) live.pictures->release();
    output.prompt_logprobs = std::move(live.prompt_logprobs);
    live.prompt_logprobs.clear();
    const Request& request = live.asked.request;
    const bool wants_none = request.max_new_tokens <= 0;
    if (drawn.error) {
      output.finished = FinishReason::kFailed;
      output.error = drawn.error;
    } else if (wants_none) {
      output.finished = FinishReason::kLength;
    } else if (!drawn.token) {
      output.finished = FinishReason::kStop;
    } else {
      ++counts_.new_tokens;
      output.logprobs = drawn.logprobs;
      try {
        take(live, *drawn.token, output);
      } catch (const std::exception&) {  // of its form
        output = ended(live, FinishReason::kFailed);
        output.error = std::current_exception();
      }
    }
    if (output.finished) forget(live.rank(), !is_of_numbers(output.error));
    return output;
  }

  void take(LiveRequest& live, text::TokenId id, EngineOutput& output) const {
    const std::vector<text::TokenId>& stops = live.asked.request.stop_ids;
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
      output.finished = FinishReason::kStop;
      output.stopped_by = id;
      return;
    }
    output.token = id;
    live.seen.push_back(id);
    live.named.push_back(id);
    if (live.asked.request.rules.constraint) live.asked.request.rules.constraint->accept(id);
    live.awaits_form = awaits_form(live);
    live.form_work = live.form_passes = 0;
    if (std::ssize(live.seen) >= live.limit) output.finished = FinishReason::kLength;
  }

  const models::CausalLM& model_;
  const EngineSettings settings_;
  Followers* const followers_;  ///< nullptr: this rank has the whole model
  bool reads_whole_ = false;    ///< no prompt is read in parts
  SharedPages pages_;
  PictureNames names_;
  LiveRequests running_, waiting_;
  Turns turns_;
  std::map<RequestHandle, RequestRank> ranks_;
  RequestHandle next_handle_ = 1;
  std::vector<RequestHandle> begun_;
  std::vector<RequestHandle> paused_;  ///< gave their logits in the last step
  EngineCounts counts_;
};

Engine::Engine(const models::CausalLM& model, EngineSettings settings, Followers* followers)
    : impl_(std::make_unique<Impl>(model, settings, followers)) {}
Engine::~Engine() = default;
RequestHandle Engine::add(EngineRequest request) { return impl_->add(std::move(request)); }
RequestHandle Engine::fork(RequestHandle from, text::TokenId next) {
  return impl_->fork(from, next);
}
void Engine::cancel(RequestHandle handle) { impl_->cancel(handle); }
void Engine::cancel_all() { impl_->cancel_all(); }
bool Engine::has_work() const { return impl_->has_work(); }
std::vector<EngineOutput> Engine::step() { return impl_->step(); }
const std::vector<RequestHandle>& Engine::begun() const { return impl_->begun(); }
EngineCounts Engine::counts() const { return impl_->counts(); }
const EngineSettings& Engine::settings() const { return impl_->settings(); }

}  // namespace danlu::infer
