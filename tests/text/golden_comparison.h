// tests/text/golden_comparison.h: a tokenizer against what a golden says of it, chunk by chunk.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/tokenizer_golden.h"

namespace danlu::test {

inline constexpr size_t kChunk = 2048;

/// The texts of a key, read once for all tokenizers. Thread-safe.
inline std::shared_ptr<const std::vector<std::string>> shared_texts(const std::string& key) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const std::vector<std::string>>> cache;
  const std::lock_guard lock(mutex);
  auto& slot = cache[key];
  if (!slot) slot = std::make_shared<const std::vector<std::string>>(texts_of(key));
  return slot;
}

using Encode = std::function<std::vector<text::TokenId>(const std::string&)>;

/// Compares chunk by chunk; one message for each chunk that differs.
inline void compare(const Json& golden, const Encode& encode,
                    const std::function<bool(const std::string&)>& is_used,
                    std::vector<std::string>& differences, size_t& num_ids) {
  const std::string name = golden["tokenizer"];
  for (const auto& [key, chunks] : golden["texts"].items()) {
    const auto texts = shared_texts(key);
    size_t at = 0;
    for (size_t c = 0; c < chunks.size(); ++c) {
      StreamHash hash;
      size_t used = 0;
      for (; at < texts->size() && used < kChunk; ++at) {
        if (!is_used((*texts)[at])) continue;
        hash.add_ids(encode((*texts)[at]));
        ++used;
      }
      num_ids += hash.count();
      if (used != chunks[c][0].get<size_t>() || hash.hex() != chunks[c][2].get<std::string>()) {
        differences.push_back(fmt::format("{} {} chunk {}: {} ids of {} texts, expected {} of {}",
                                          name, key, c, hash.count(), used,
                                          chunks[c][1].get<size_t>(), chunks[c][0].get<size_t>()));
      }
    }
    while (at < texts->size() && !is_used((*texts)[at])) ++at;
    if (at != texts->size()) differences.push_back(name + " " + key + ": texts left over");
  }
}

/// Texts of random ids, with special tokens and without.
inline void expect_decoded(const Json& golden, const text::Tokenizer& tokenizer,
                           const std::string& name) {
  const auto size = golden["size"].get<uint32_t>();
  EXPECT_EQ(size, tokenizer.size()) << name;
  StreamHash keep, skip;
  uint32_t state = 12345;
  for (size_t i = 0; i < golden["lists"].get<size_t>(); ++i) {
    std::vector<text::TokenId> ids;
    for (size_t k = 0; k <= i % 23; ++k) {
      state = state * 1103515245u + 12345u;
      ids.push_back(
          static_cast<text::TokenId>((state >> 8) % (i % 3 == 0 ? std::min(300u, size) : size)));
    }
    keep.add_text(tokenizer.decode(ids, false));
    skip.add_text(tokenizer.decode(ids, true));
  }
  EXPECT_EQ(golden["keep_special"].get<std::string>(), keep.hex()) << name;
  EXPECT_EQ(golden["skip_special"].get<std::string>(), skip.hex()) << name;
}

}  // namespace danlu::test
