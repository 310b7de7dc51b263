// tests/serve/scripted_engine.h: an engine whose answers a test writes.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "serve/step_engine.h"

namespace danlu::test {

/// What a test sees and sets from its own thread; one for all engines that a loop makes.
struct EngineScript {
  /// A prompt's answer, byte by byte; without one it never ends by itself.
  std::function<std::string(const infer::Request&)> answer = {};
  std::atomic<bool> is_held = false;  ///< steps give nothing
  std::atomic<bool> fails_next_step = false;
  std::atomic<int64_t> most_running = 1000;  ///< the others wait
  std::atomic<int> num_engines = 0, num_cancelled = 0, num_running = 0;
  std::mutex mutex;
  std::vector<infer::EngineRequest> added;  ///< by the mutex
};

class ScriptedEngine : public serve::StepEngine {
 public:
  explicit ScriptedEngine(EngineScript& script) : script_(script) { ++script_.num_engines; }
  ~ScriptedEngine() override { script_.num_running -= static_cast<int>(running_.size()); }

  infer::RequestHandle add(infer::EngineRequest request) override {
    if (request.request.prompt.size() > 5000) throw DataError("the prompt does not fit");
    Running running{.text = script_.answer(request.request),
                    .request = request.request,
                    .num_logprobs = request.num_logprobs,
                    .num_prompt_logprobs = request.num_prompt_logprobs,
                    .pools = request.pooling.has_value()};
    {
      const std::lock_guard lock(script_.mutex);
      script_.added.push_back(std::move(request));
    }
    ++script_.num_running;
    running_.emplace(next_, std::move(running));
    return next_++;
  }
  void cancel(infer::RequestHandle handle) override {
    if (running_.erase(handle) == 0) return;
    ++script_.num_cancelled;
    --script_.num_running;
  }
  bool has_work() const override { return !running_.empty(); }

  std::vector<infer::EngineOutput> step() override {
    if (script_.fails_next_step.exchange(false)) throw MemoryError("no memory is left");
    std::vector<infer::EngineOutput> outputs;
    begun_.clear();
    int64_t place = 0;
    for (auto& [handle, running] : running_) {
      if (place++ >= script_.most_running) break;
      if (!std::exchange(running.has_begun, true)) begun_.push_back(handle);
    }
    if (script_.is_held) {
      // A step takes time, in which others come to the loop's mutex.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return outputs;
    }
    for (auto at = running_.begin(); at != running_.end();) {
      outputs.push_back(next_output(at->first, at->second));
      if (outputs.back().finished) --script_.num_running;
      at = outputs.back().finished ? running_.erase(at) : std::next(at);
    }
    return outputs;
  }
  std::vector<infer::RequestHandle> begun() const override { return begun_; }
  infer::EngineCounts counts() const override {
    infer::EngineCounts counts = counts_;
    const auto all = static_cast<int64_t>(running_.size());
    counts.running = std::min(all, script_.most_running.load());
    counts.waiting = all - counts.running;
    return counts;
  }
  infer::EngineSettings settings() const override { return {.max_pages = 100}; }

 private:
  struct Running {
    std::string text;
    infer::Request request;
    std::optional<int64_t> num_logprobs, num_prompt_logprobs;
    bool pools = false, has_begun = false;
    size_t position = 0;
  };

  static infer::TokenLogprobs logprobs_of(text::TokenId id, int64_t likeliest) {
    infer::TokenLogprobs logprobs{.chosen = {id, -0.5f}, .likeliest = {}};
    for (int64_t i = 0; i < likeliest; ++i)
      logprobs.likeliest.push_back({static_cast<text::TokenId>(id + i), -0.5f - float(i)});
    return logprobs;
  }

  infer::EngineOutput next_output(infer::RequestHandle handle, Running& running) {
    infer::EngineOutput output{.handle = handle};
    if (running.position == 0) {
      output.cached_tokens = 2;
      counts_.prompt_tokens += static_cast<int64_t>(running.request.prompt.size());
      if (running.num_prompt_logprobs) {
        for (size_t i = 1; i < running.request.prompt.size(); ++i)
          output.prompt_logprobs.push_back(
              logprobs_of(running.request.prompt[i], *running.num_prompt_logprobs));
      }
    }
    if (running.pools) {
      output.embedding = {static_cast<float>(running.request.prompt.size()), 4};
      output.finished = infer::FinishReason::kStop;
      return output;
    }
    const bool ends = running.position >= running.text.size();
    const text::TokenId id =
        ends ? '|' : static_cast<unsigned char>(running.text[running.position]);
    const auto& stops = running.request.stop_ids;
    ++counts_.new_tokens;
    if (running.num_logprobs) output.logprobs = logprobs_of(id, *running.num_logprobs);
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
      output.finished = infer::FinishReason::kStop;
      output.stopped_by = id;
      return output;
    }
    output.token = id;
    if (static_cast<int64_t>(++running.position) >= running.request.max_new_tokens)
      output.finished = infer::FinishReason::kLength;
    return output;
  }

  EngineScript& script_;
  std::map<infer::RequestHandle, Running> running_;
  infer::EngineCounts counts_;
  std::vector<infer::RequestHandle> begun_;
  infer::RequestHandle next_ = 1;
};

}  // namespace danlu::test
