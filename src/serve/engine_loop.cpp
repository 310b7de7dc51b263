#include "serve/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/refusal.h"
#include "base/clock.h"
#include "base/in_english.h"
#include "base/log.h"

namespace danlu::serve {
namespace {

/// One that cannot even hear that it failed is left alone.
void tell_failed(Receiver& receiver, const Error& why, Blame blame) {
  try {
    receiver.on_failed(why, blame);
  } catch (...) {
    log::warning("a request that failed cannot be answered: {}", current_error().what());
  }
}

}  // namespace

EngineLoop::EngineLoop(MakeStepEngine make, EngineLoopSettings settings)
    : settings_(settings),
      make_(std::move(make)),
      engine_(make_()),
      settings_of_engine_(engine_->settings()) {}

void EngineLoop::end() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wakes_.notify_all();
}

std::optional<Ticket> EngineLoop::submit(std::vector<infer::EngineRequest> requests,
                                         std::shared_ptr<Receiver> receiver) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (why_dead_ || is_ending_ || has_no_place()) return std::nullopt;
    ticket = next_ticket_++;
    ++num_new_groups_;
    num_submitted_ += requests.size();
    submitted_.push_back({ticket, std::move(requests), std::move(receiver), steady_now_s()});
  }
  wakes_.notify_all();
  return ticket;
}

void EngineLoop::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wakes_.notify_all();
}

std::exception_ptr EngineLoop::why_dead() const {
  const std::lock_guard lock(mutex_);
  return why_dead_;
}

infer::EngineCounts EngineLoop::counts() const {
  const std::lock_guard lock(mutex_);
  infer::EngineCounts counts = counts_;
  counts.waiting = static_cast<int64_t>(num_waiting());
  return counts;
}

size_t EngineLoop::num_waiting() const {
  return num_submitted_ + static_cast<size_t>(counts_.waiting + num_elsewhere_);
}

bool EngineLoop::has_no_place() const {
  constexpr size_t kRequestsOfAGroup = 16;
  const size_t groups = num_new_groups_ + num_waiting_groups_ + static_cast<size_t>(num_elsewhere_);
  return groups >= settings_.max_queue || num_waiting() >= kRequestsOfAGroup * settings_.max_queue;
}

void EngineLoop::count_elsewhere(int64_t more) {
  const std::lock_guard lock(mutex_);
  num_elsewhere_ += more;
}

bool EngineLoop::is_full() const {
  const std::lock_guard lock(mutex_);
  return has_no_place();
}

void EngineLoop::run() {
  const InEnglish english;  // what it says goes to clients
  while (true) {
    std::vector<Submission> submitted;
    std::vector<Ticket> cancelled;
    {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, [&] {
        return is_ending_ || !submitted_.empty() || !cancelled_.empty() ||
               (engine_ && engine_->has_work());
      });
      if (is_ending_) break;
      submitted.swap(submitted_);
      cancelled.swap(cancelled_);
    }
    size_t num_taken = 0;
    for (const Submission& submission : submitted) num_taken += submission.requests.size();
    const size_t num_groups = submitted.size();
    turn(std::move(submitted), cancelled);
    const auto waiting_groups = std::count_if(groups_.begin(), groups_.end(), [](const auto& item) {
      return item.second.num_begun < item.second.size;
    });
    const std::lock_guard lock(mutex_);
    counts_ = engine_ ? engine_->counts() : infer::EngineCounts{};
    num_submitted_ -= num_taken;
    num_new_groups_ -= num_groups;
    num_waiting_groups_ = static_cast<size_t>(waiting_groups);
  }
  tell_the_end();
}

void EngineLoop::tell_the_end() {
  std::vector<Submission> submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
  }
  const Error why(ExitCode::kInterrupted, "the server ends, and the answer is not complete");
  for (const Submission& submission : submitted)
    tell_failed(*submission.receiver, why, Blame::kEnd);
  for (const auto& [handle, request] : std::exchange(running_, {}))
    metrics_.count_end(request.times, "abort", steady_now_s());
  for (const auto& [ticket, group] : std::exchange(groups_, {}))
    tell_failed(*group.receiver, why, Blame::kEnd);
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  wakes_.notify_all();
}

void EngineLoop::await_end() {
  std::unique_lock lock(mutex_);
  wakes_.wait(lock, [this] { return has_ended_; });
}

void EngineLoop::turn(std::vector<Submission> submitted, const std::vector<Ticket>& cancelled) {
  if (!engine_) return refuse(submitted);
  try {
    for (Submission& submission : submitted) take_in(std::move(submission));
    for (const Ticket ticket : cancelled) drop(ticket);
    if (!engine_->has_work()) return;
    const infer::EngineCounts before = engine_->counts();
    const double begun_s = steady_now_s();
    const std::vector<infer::EngineOutput> outputs = engine_->step();
    const infer::EngineCounts after = engine_->counts();
    metrics_.count_step(after.prompt_tokens + after.new_tokens - before.prompt_tokens -
                        before.new_tokens);
    for (const infer::RequestHandle handle : engine_->begun()) {
      const auto found = running_.find(handle);
      if (found == running_.end()) continue;
      found->second.times.begun_s = begun_s;
      note_begun(found->second);
    }
    for (const infer::EngineOutput& output : outputs) hand_out(output);
  } catch (...) {
    fail_all(current_error());
  }
}

void EngineLoop::note_begun(Running& running) {
  if (std::exchange(running.has_begun, true)) return;
  ++groups_.at(running.ticket).num_begun;
}

void EngineLoop::refuse(const std::vector<Submission>& came_while_it_died) {
  try {
    std::rethrow_exception(why_dead());
  } catch (...) {
    const Error why = current_error();
    for (const Submission& submission : came_while_it_died)
      tell_failed(*submission.receiver, why, Blame::kServer);
  }
}

void EngineLoop::take_in(Submission submission) {
  Group group{.receiver = std::move(submission.receiver), .size = submission.requests.size()};
  try {
    for (size_t i = 0; i < submission.requests.size(); ++i) {
      const auto prompt_tokens = static_cast<int64_t>(submission.requests[i].request.prompt.size());
      submission.requests[i].group = submission.ticket;
      const infer::RequestHandle handle = engine_->add(std::move(submission.requests[i]));
      group.open.push_back(handle);
      running_.emplace(handle, Running{.ticket = submission.ticket,
                                       .index = i,
                                       .times = {.submitted_s = submission.submitted_s,
                                                 .prompt_tokens = prompt_tokens}});
    }
  } catch (...) {
    const Error why = current_error();
    for (const infer::RequestHandle handle : group.open) {
      engine_->cancel(handle);
      running_.erase(handle);
    }
    return tell_failed(*group.receiver, why,
                       api::is_of_client(why) ? Blame::kClient : Blame::kServer);
  }
  const std::shared_ptr<Receiver> receiver = group.receiver;
  groups_.emplace(submission.ticket, std::move(group));
  try {
    receiver->on_accepted();
  } catch (...) {
    fail(submission.ticket, current_error());
  }
}

void EngineLoop::drop(Ticket ticket) {
  const auto found = groups_.find(ticket);
  if (found == groups_.end()) return;
  for (const infer::RequestHandle handle : std::vector(found->second.open)) {
    engine_->cancel(handle);
    metrics_.count_end(running_.at(handle).times, "abort", steady_now_s());
    end_request(handle);
  }
}

void EngineLoop::fail(Ticket ticket, const Error& why) {
  log::warning("a request is answered with an error: {}", why.what());
  const auto found = groups_.find(ticket);
  const std::shared_ptr<Receiver> receiver = found->second.receiver;
  for (const infer::RequestHandle handle : std::vector(found->second.open)) {
    engine_->cancel(handle);
    metrics_.count_end(running_.at(handle).times, "error", steady_now_s());
    end_request(handle);
  }
  tell_failed(*receiver, why, Blame::kServer);
}

void EngineLoop::end_request(infer::RequestHandle handle) {
  const auto running = running_.find(handle);
  note_begun(running->second);  // it waits no more
  const auto group = groups_.find(running->second.ticket);
  running_.erase(running);
  std::erase(group->second.open, handle);
  if (group->second.open.empty()) groups_.erase(group);
}

void EngineLoop::hand_out(const infer::EngineOutput& output) {
  const auto found = running_.find(output.handle);
  if (found == running_.end()) return;
  Running& running = found->second;
  const double now_s = steady_now_s();
  if (output.token || output.stopped_by) {
    metrics_.count_token(running.times, now_s);
    if (running.times.new_tokens++ == 0) running.times.first_token_s = now_s;
    running.times.last_token_s = now_s;
  }
  Heard heard = Heard::kMore;
  try {
    heard = groups_.at(running.ticket).receiver->on_output(running.index, output);
  } catch (...) {
    return fail(running.ticket, current_error());
  }
  if (!output.finished && heard == Heard::kMore) return;
  if (!output.finished) engine_->cancel(output.handle);
  // Where a receiver ends an answer, a stop string did.
  const char* const end = infer::name_of(output.finished.value_or(infer::FinishReason::kStop));
  metrics_.count_end(running.times, heard == Heard::kGone ? "abort" : end, now_s);
  const Ticket ticket = running.ticket;
  end_request(output.handle);
  // The failure was the answer to all of them.
  if (output.finished == infer::FinishReason::kFailed) drop(ticket);
}

void EngineLoop::fail_all(const Error& why) {
  log::warning("the engine failed, its requests are answered with an error: {}", why.what());
  const std::map<Ticket, Group> groups = std::exchange(groups_, {});
  for (const auto& [handle, request] : std::exchange(running_, {}))
    metrics_.count_end(request.times, "error", steady_now_s());
  for (const auto& [ticket, group] : groups) tell_failed(*group.receiver, why, Blame::kServer);
  try {
    engine_ = nullptr;  // its pages first
    engine_ = make_();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    why_dead_ = std::current_exception();
  }
}

}  // namespace danlu::serve
