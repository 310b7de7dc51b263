#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace danlu::serve {
namespace {

const std::vector<double> kRequestBounds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                               0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                               20,    40,    80,   160,  640,  2560};
const std::vector<double> kTokenBounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const std::vector<double> kStepBounds = {1,   8,    16,   32,   64,   128,  256,
                                         512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kLengthBounds = {1,   2,    5,    10,   20,    50,    100,   200,
                                           500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

std::string header_of(const std::string& name, const char* type, const std::string& help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string value_of(const std::string& name, const char* type, const std::string& help,
                     const std::string& labels, double value) {
  return header_of(name, type, help) + fmt::format("{}{{{}}} {}\n", name, labels, value);
}

std::string quoted_label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Histogram::add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(at - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& help,
                            const std::string& labels) const {
  std::string lines = header_of(name, "histogram", help);
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    lines += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  return lines +
         fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, total);
}

Metrics::Metrics()
    : first_token_(kFirstTokenBounds),
      between_tokens_(kTokenBounds),
      whole_(kRequestBounds),
      queue_(kRequestBounds),
      prefill_(kRequestBounds),
      decode_(kRequestBounds),
      inference_(kRequestBounds),
      step_tokens_(kStepBounds),
      prompt_(kLengthBounds),
      answer_(kLengthBounds) {}

void Metrics::count_token(const RequestTimes& times, double now_s) {
  const std::lock_guard lock(mutex_);
  if (times.new_tokens == 0) {
    first_token_.add(now_s - times.submitted_s);
  } else {
    between_tokens_.add(now_s - times.last_token_s);
  }
}

void Metrics::count_end(const RequestTimes& times, const std::string& finish, double now_s) {
  const std::lock_guard lock(mutex_);
  ++ended_[finish];
  whole_.add(now_s - times.submitted_s);
  if (times.begun_s > 0) {
    queue_.add(times.begun_s - times.submitted_s);
    inference_.add(now_s - times.begun_s);
  }
  if (times.new_tokens > 0) {
    prefill_.add(times.first_token_s - times.begun_s);
    decode_.add(times.last_token_s - times.first_token_s);
  }
  prompt_.add(static_cast<double>(times.prompt_tokens));
  answer_.add(static_cast<double>(times.new_tokens));
}

void Metrics::count_step(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  step_tokens_.add(static_cast<double>(tokens));
}

std::string Metrics::text(const std::string& model, const infer::EngineCounts& counts,
                          int64_t max_pages) const {
  const std::string labels = fmt::format("model_name=\"{}\",engine=\"0\"", quoted_label(model));
  const auto gauge = [&](const char* name, const char* help, double value) {
    return value_of(fmt::format("vllm:{}", name), "gauge", help, labels, value);
  };
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    return value_of(fmt::format("vllm:{}_total", name), "counter", help, labels,
                    static_cast<double>(value));
  };
  const double usage =
      max_pages > 0 ? static_cast<double>(counts.pages_used) / static_cast<double>(max_pages) : 0.0;
  std::string all =
      gauge("num_requests_running", "Requests that are answered.",
            static_cast<double>(counts.running)) +
      gauge("num_requests_waiting", "Requests that wait.", static_cast<double>(counts.waiting)) +
      gauge("kv_cache_usage_perc", "Share of the pages in use, 1 for all.", usage) +
      counter("prefix_cache_queries", "Prompt tokens looked up.", counts.prefix_queried) +
      counter("prefix_cache_hits", "Prompt tokens found.", counts.prefix_hit) +
      counter("num_preemptions", "Requests put back.", counts.preemptions) +
      counter("prompt_tokens", "Prompt tokens.", counts.prompt_tokens) +
      counter("generation_tokens", "New tokens.", counts.new_tokens) +
      counter("spec_decode_num_draft_tokens", "Tokens that were guessed.", counts.guessed) +
      counter("spec_decode_num_accepted_tokens", "Guesses that were right.", counts.guessed_right);
  const std::lock_guard lock(mutex_);
  all += header_of("vllm:request_success_total", "counter", "Requests that ended.");
  for (const char* finish : {"stop", "length", "abort", "error"}) {
    const auto found = ended_.find(finish);
    all += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels,
                       finish, found == ended_.end() ? 0 : found->second);
  }
  const auto histogram = [&](const Histogram& values, const char* name, const char* help) {
    all += values.text(fmt::format("vllm:{}", name), help, labels);
  };
  histogram(first_token_, "time_to_first_token_seconds", "From request to first token.");
  histogram(between_tokens_, "inter_token_latency_seconds", "From one token to the next.");
  histogram(whole_, "e2e_request_latency_seconds", "From request to end.");
  histogram(queue_, "request_queue_time_seconds", "From request to its first step.");
  histogram(prefill_, "request_prefill_time_seconds", "From its first step to the first token.");
  histogram(inference_, "request_inference_time_seconds", "From its first step to the end.");
  histogram(decode_, "request_decode_time_seconds", "From first to last token.");
  histogram(step_tokens_, "iteration_tokens_total", "Tokens of a step.");
  histogram(prompt_, "request_prompt_tokens", "Prompt tokens of a request.");
  histogram(answer_, "request_generation_tokens", "New tokens of a request.");
  return all;
}

}  // namespace danlu::serve
