#include "parallel/agree.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/json.h"

namespace danlu::parallel {

std::string text_from(const Group& group, int64_t root, const std::string& text) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  group.broadcast(size, root);
  at::Tensor bytes = at::empty({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group.broadcast(bytes, root);
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(size.item<int64_t>())};
}

int64_t sum_of(const Group& group, int64_t number) {
  at::Tensor sum = at::full({1}, number, at::kLong);
  group.all_reduce_sum(sum);
  return sum.item<int64_t>();
}

std::vector<int64_t> numbers_of_all(const Group& group, int64_t number) {
  const at::Tensor all = group.all_gather(at::full({1}, number, at::kLong), 0);
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + group.size()};
}

std::vector<std::string> texts_of_all(const Group& group, const std::string& text) {
  const std::vector<int64_t> sizes = numbers_of_all(group, static_cast<int64_t>(text.size()));
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  at::Tensor own = at::zeros({1, longest}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  const at::Tensor all = group.all_gather(own, 0);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(
        static_cast<const char*>(all.data_ptr()) + static_cast<int64_t>(rank) * longest,
        static_cast<size_t>(sizes[rank]));
  return texts;
}

int64_t largest_of(const Group& group, int64_t number) {
  at::Tensor largest = at::full({1}, number, at::kLong);
  group.all_reduce_max(largest);
  return largest.item<int64_t>();
}

void throw_broken_exchange() {
  try {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const BrokenExchange&) {
    throw;
  } catch (...) {
    throw BrokenExchange(current_error());
  }
}

std::optional<RankFailure> first_failure(const Group& group, const std::function<void()>& body) {
  std::optional<Error> own;
  try {
    body();
  } catch (const CommError&) {
    throw;
  } catch (const BrokenExchange&) {
    throw;
  } catch (...) {
    own = current_error();
  }
  const int64_t ranks = group.size();
  const int64_t first = ranks - largest_of(group, own ? ranks - group.rank() : 0);
  if (first == ranks) return std::nullopt;
  std::string told;
  if (own) told = dump_text({static_cast<int>(own->code()), own->what(), own->hint()});
  const Json of_first = parse_json(text_from(group, first, told), "a rank's failure");
  return RankFailure{first, Error(static_cast<ExitCode>(of_first.at(0).get<int>()), of_first.at(1),
                                  of_first.at(2))};
}

void together(const Group& group, const std::function<void()>& body) {
  std::exception_ptr own;
  const auto failure = first_failure(group, [&] {
    try {
      body();
    } catch (...) {
      own = std::current_exception();
      throw;
    }
  });
  if (own) std::rethrow_exception(own);
  if (!failure) return;
  const Error& error = failure->error;
  throw_as_kind(Error(error.code(), tr("rank {}: {}", failure->rank, error.what()), error.hint()));
}

}  // namespace danlu::parallel
