// data/formats/self_names.h: what a model is taught to call itself and its maker.
#pragma once
#include <string>

#include "base/json.h"
#include "data/formats/row.h"

namespace danlu::data {

/// In answers of swift/self-cognition and rows like it, {{NAME}} and {{AUTHOR}} stand where these
/// belong. An empty one leaves its placeholder.
struct SelfNames {
  std::string chinese_name = {}, english_name = {};
  std::string chinese_author = {}, english_author = {};

  bool empty() const { return english_name.empty() && english_author.empty(); }
  bool operator==(const SelfNames&) const = default;
  Json to_json() const {
    return Json::array({chinese_name, english_name, chinese_author, english_author});
  }
};

/// Puts them into the answers of `conversation`: in Chinese where the row's column `tag` is "zh",
/// or where it has none and the answer holds Chinese characters.
void put_names(const SelfNames& names, const Json& row, text::Conversation& conversation);

}  // namespace danlu::data
