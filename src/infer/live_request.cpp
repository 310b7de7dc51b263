#include "infer/live_request.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "base/error.h"
#include "device/parallel.h"
#include "infer/step.h"
#include "ops/pages.h"
#include "parallel/agree.h"

namespace danlu::infer {

bool LiveRequest::takes_likeliest() const {
  const Request& request = asked.request;
  return !request.sampling.do_sample && request.sampling.repetition_penalty == 1.0 &&
         request.rules.is_empty() && drafts.empty() && !asked.num_logprobs && !asked.gives_logits &&
         !wants_prompt_logprobs();
}

namespace {

/// None: nothing may come any more. Errors: as sample_token.
std::optional<text::TokenId> next_of(std::span<float> row, const LiveRequest& live,
                                     at::ScalarType computed_in) {
  const Request& request = live.asked.request;
  require_usable_logits(row, computed_in);
  const std::span<const text::TokenId> answer = live.answer();
  if (!apply_rules(row, request.rules, answer, request.stop_ids)) return std::nullopt;
  return sample_token(row, live.seen, request.sampling, request.stream, answer.size(), computed_in);
}

}  // namespace

DrawnToken draw(std::span<float> row, const LiveRequest& live, at::ScalarType computed_in) {
  DrawnToken drawn;
  try {
    std::vector<float> of_model;
    if (live.asked.num_logprobs) {
      of_model.assign(row.begin(), row.end());
      keep_form(of_model, live.asked.request.rules);
    }
    drawn.token = next_of(row, live, computed_in);
    if (drawn.token && live.asked.num_logprobs)
      drawn.logprobs = logprobs_of(of_model, *drawn.token, *live.asked.num_logprobs);
  } catch (const std::exception&) {  // too little memory as well: it is this request's alone
    drawn.error = std::current_exception();
  }
  return drawn;
}

bool is_of_numbers(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const NumericError&) {
    return true;
  } catch (...) {
    return false;
  }
}

void agree(const parallel::Group& group, std::vector<DrawnToken>& drawn) {
  constexpr int32_t kNothing = -1, kFailure = -2;
  std::string ids;
  for (const DrawnToken& one : drawn)
    ids += std::to_string(one.error ? kFailure : one.token.value_or(kNothing)) + " ";
  std::istringstream first(parallel::text_from(group, 0, ids));
  for (DrawnToken& one : drawn) {
    int32_t id = kNothing;
    first >> id;
    if (id == kFailure) {
      if (!one.error)
        one.error = std::make_exception_ptr(NumericError(tr("[engine] rank 0 drew no token")));
      continue;
    }
    one = {};
    if (id >= 0) one.token = id;
  }
}

std::vector<float> mean_of_pooled(const LiveRequest& live) {
  const double count =
      live.asked.pooling == Pooling::kMean ? static_cast<double>(live.seen.size()) : 1.0;
  std::vector<float> mean;
  for (const double sum : live.pooled) {
    if (!std::isfinite(sum)) return {};
    mean.push_back(static_cast<float>(sum / count));
  }
  return mean;
}

void pool_hidden(Pooling how, const at::Tensor& hidden_nH, std::vector<double>& pooled) {
  const int64_t all = hidden_nH.size(0), used = how == Pooling::kMean ? all : 1;
  const int64_t begin = how == Pooling::kFirst ? 0 : all - used;
  const at::Tensor rows = hidden_nH.narrow(0, begin, used).to(at::kCPU, at::kFloat).contiguous();
  if (how != Pooling::kMean) pooled.clear();
  pooled.resize(static_cast<size_t>(rows.size(1)), 0.0);
  const float* value = rows.data_ptr<float>();
  for (int64_t row = 0; row < used; ++row) {
    for (double& sum : pooled) sum += *value++;
  }
}

std::string root_of(const LiveRequest& live, const arch::ModelConfig& config) {
  const bool is_long = config.rope.scaling == arch::RopeScaling::kLongRope &&
                       std::ssize(live.seen) > config.rope.original_max_positions;
  return fmt::format("{}:{}:{}", live.adapter_id(), is_long ? 1 : 0, live.asked.salt);
}

void note_prompt_logprobs(LiveRequest& live, int64_t first, const at::Tensor& logits_RV,
                          int64_t row, int64_t tokens) {
  const int64_t count = std::min(tokens, live.prompt_size() - first - 1);
  if (count <= 0) return;
  const size_t before = live.prompt_logprobs.size();
  live.prompt_logprobs.resize(before + static_cast<size_t>(count));
  device::parallel_each(static_cast<size_t>(count), [&](size_t i) {
    const std::span<float> logits =
        answerable(logits_RV, static_cast<size_t>(row) + i, live.asked.request);
    live.prompt_logprobs[before + i] = logprobs_of(
        logits, live.seen[static_cast<size_t>(first) + i + 1], *live.asked.num_prompt_logprobs);
  });
}

int64_t num_adapters(const LiveRequests& requests, const LiveRequest& one) {
  std::set<uint64_t> ids;
  if (one.asked.adapter) ids.insert(one.adapter_id());
  for (const auto& [rank, other] : requests) {
    if (other->asked.adapter) ids.insert(other->adapter_id());
  }
  return std::ssize(ids);
}

bool computes_next_page_of(const LiveRequest& other, const LiveRequest& live,
                           const std::vector<PrefixIndex::Place>& shared) {
  const size_t begin = shared.size() * ops::kPageTokens, end = begin + ops::kPageTokens;
  if (end >= live.named.size() || end > other.named.size()) return false;
  return other.root == live.root && other.places == shared &&
         std::equal(live.named.begin() + static_cast<std::ptrdiff_t>(begin),
                    live.named.begin() + static_cast<std::ptrdiff_t>(end),
                    other.named.begin() + static_cast<std::ptrdiff_t>(begin));
}

bool outgrows_cache(const arch::ModelConfig& config, int64_t cached, int64_t length) {
  const int64_t original = config.rope.original_max_positions;
  return config.rope.scaling == arch::RopeScaling::kLongRope && cached > 0 &&
         (cached > original) != (length > original);
}

}  // namespace danlu::infer
