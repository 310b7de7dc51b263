#include "eval/needle/needle_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/rng.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"
#include "eval/needle/sentences.h"

namespace danlu::eval {

namespace fs = std::filesystem;
namespace {

/// Calls on_row(row, place) for every row of a JSON file.
template <typename OnRow>
void each_row(const fs::path& path, OnRow&& on_row) {
  data::Dataset dataset;
  dataset.name = path.string();
  const auto type =
      path.extension() == ".jsonl" ? data::FileType::kJsonLines : data::FileType::kJson;
  dataset.files.push_back({path, type, fs::file_size(path)});
  data::RowReader reader(dataset);
  std::vector<data::RawRow> rows;
  while (reader.next_block(&rows)) {
    for (const data::RawRow& raw : rows) {
      const auto place = [&] { return data::row_place(dataset, raw.file, raw.index); };
      const Json row = data::parse_row(dataset, raw);
      if (!row.is_object()) throw DataError(tr("{}: a row must be an object", place()));
      on_row(row, place);
    }
    rows.clear();
  }
}

std::string keys_of(const Json& row) {
  std::string keys;
  for (const auto& [key, value] : row.items()) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

/// The first of `names` that the row has, in whatever way it tells languages apart; null: none.
Json found_field(const Json& row, const std::vector<std::string>& names,
                 const NeedleLanguage& language) {
  for (const std::string& own : {language.name, lower_case(language.name), language.code}) {
    const auto part = row.find(own);
    if (part == row.end() || !part->is_object()) continue;
    for (const std::string& name : names) {
      if (part->contains(name)) return part->at(name);
    }
  }
  for (const std::string& name : names) {
    for (const std::string& key : {name + "_" + language.code, name}) {
      if (row.contains(key)) return row.at(key);
    }
  }
  return nullptr;
}

template <typename Place>
[[noreturn]] void refuse_field(const Json& row, const std::vector<std::string>& names,
                               std::string_view what, const Place& place) {
  throw DataError(tr("{}: a row needs \"{}\" ({}), it has: {}", place(),
                     fmt::format("{}", fmt::join(names, "\" / \"")), what, keys_of(row)));
}

template <typename Place>
std::string text_field(const Json& row, const std::vector<std::string>& names,
                       const NeedleLanguage& language, const Place& place) {
  const Json value = found_field(row, names, language);
  if (!value.is_string() || value.get<std::string>().empty())
    refuse_field(row, names, tr("a text that is not empty"), place);
  return value.get<std::string>();
}

template <typename Place>
std::vector<std::string> texts_field(const Json& row, const std::vector<std::string>& names,
                                     const NeedleLanguage& language, const Place& place) {
  const Json value = found_field(row, names, language);
  std::vector<std::string> texts;
  for (const Json& text : value.is_array() ? value : Json::array()) {
    if (!text.is_string() || text.get<std::string>().empty()) break;
    texts.push_back(text.get<std::string>());
  }
  if (texts.empty() || texts.size() != value.size())
    refuse_field(row, names, tr("a list of texts"), place);
  return texts;
}

bool is_of(const Json& row, const NeedleLanguage& language) {
  const auto named = row.find("language");
  return named == row.end() || !named->is_string() || *named == language.name ||
         *named == language.code || *named == lower_case(language.name);
}

std::unique_ptr<TokenRuler> choose_ruler(const NeedlePlan& plan, const fs::path& folder,
                                         const fs::path& named, const Model* model) {
  if (!named.empty()) return open_token_ruler(named);
  for (const std::string& name : plan.counted_with) {
    for (const char* below : {"", "needlebench", "NeedleBench", "data/needlebench"}) {
      if (fs::exists(folder / below / name)) return open_token_ruler(folder / below / name);
    }
  }
  if (!model)
    throw UsageError(tr("{}: nothing is there to count tokens with", folder.string()),
                     tr("copy {} into it", plan.counted_with.front()));
  return model_token_ruler(*model);
}

}  // namespace

std::vector<size_t> needle_order(size_t count, int64_t repeat) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int64_t seed = 0; seed <= repeat; ++seed) PythonRandom(seed).shuffle(std::span(order));
  return order;
}

NeedleData::NeedleData(NeedlePlan plan, fs::path folder, const fs::path& named_tokenizer,
                       const Model* model)
    : plan_(std::move(plan)), folder_(std::move(folder)) {
  if (!fs::is_directory(folder_))
    throw DataError(tr("{}: no such directory", folder_.string()), plan_.where_from);
  ruler_ = choose_ruler(plan_, folder_, named_tokenizer, model);
}

fs::path NeedleData::find(const std::string& name) const {
  for (const char* below : {"", "needlebench", "NeedleBench", "data/needlebench"}) {
    if (fs::is_regular_file(folder_ / below / name)) return folder_ / below / name;
  }
  throw DataError(tr("{}: NeedleBench's file {} is not there", folder_.string(), name),
                  plan_.where_from);
}

void NeedleData::read_needles(const NeedleLanguage& language, std::vector<Needle>& to) const {
  const fs::path path = find(plan_.needles);
  std::vector<Needle> needles;
  each_row(path, [&](const Json& row, const auto& place) {
    if (!is_of(row, language)) return;
    needles.push_back({text_field(row, {"needle"}, language, place),
                       text_field(row, {"retrieval_question", "question"}, language, place),
                       text_field(row, {"keyword", "arg2"}, language, place)});
  });
  if (needles.empty())
    throw DataError(tr("{}: no row is of the language {}", path.string(), language.name));
  to = std::move(needles);
}

void NeedleData::read_chains(const NeedleLanguage& language, std::vector<NeedleChain>& to) const {
  const fs::path path = find(language.reasoning);
  std::vector<NeedleChain> chains;
  each_row(path, [&](const Json& row, const auto& place) {
    if (!is_of(row, language)) return;
    chains.push_back({texts_field(row, {"derivations", "needles"}, language, place),
                      text_field(row, {"question", "retrieval_question"}, language, place),
                      text_field(row, {"answer", "keyword"}, language, place)});
  });
  if (chains.empty())
    throw DataError(tr("{}: no row is of the language {}", path.string(), language.name));
  to = std::move(chains);
}

void NeedleData::read_essays(const NeedleLanguage& language, std::vector<Essay>& to) const {
  const fs::path path = find(language.haystack);
  std::vector<Essay> essays;
  each_row(path, [&](const Json& row, const auto& place) {
    const Json value = found_field(row, {"text"}, language);
    if (!value.is_string()) refuse_field(row, {"text"}, tr("a text"), place);
    if (!value.get<std::string>().empty()) essays.push_back({value.get<std::string>(), {}, {}});
  });
  to = std::move(essays);
}

const std::vector<Needle>& NeedleData::needles(const NeedleLanguage& language) const {
  const std::lock_guard lock(mutex_);
  std::vector<Needle>& needles = files_[language.name].needles;
  if (needles.empty()) read_needles(language, needles);
  return needles;
}

std::vector<const NeedleChain*> NeedleData::chains(const NeedleLanguage& language,
                                                   int64_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<NeedleChain>& all = files_[language.name].chains;
  if (all.empty()) read_chains(language, all);
  std::vector<const NeedleChain*> chosen;
  for (const NeedleChain& chain : all) {
    if (static_cast<int64_t>(chain.needles.size()) == count) chosen.push_back(&chain);
  }
  if (chosen.empty())
    throw DataError(tr("{}: no row has {} derivations", find(language.reasoning).string(), count));
  return chosen;
}

bool NeedleData::collect(const NeedleLanguage& language, int64_t repeat, int64_t num_tokens,
                         Haystack& to) const {
  std::vector<Essay>& essays = files_[language.name].essays;
  int64_t tokens = 0;
  to = {};
  for (const size_t i : needle_order(essays.size(), repeat)) {
    Essay& essay = essays[i];
    if (essay.ends.empty()) {
      essay.ends = sentence_ends(essay.text);
      essay.tokens = ruler_->count_parts(essay.text, essay.ends);
    }
    size_t begin = 0;
    for (size_t sentence = 0; sentence < essay.ends.size(); ++sentence) {
      if (tokens + essay.tokens[sentence] > num_tokens) return false;
      to.text.append(essay.text, begin, essay.ends[sentence] - begin);
      to.ends.push_back(to.text.size());
      to.tokens.push_back(tokens += essay.tokens[sentence]);
      begin = essay.ends[sentence];
    }
  }
  return true;
}

Haystack NeedleData::haystack(const NeedleLanguage& language, int64_t repeat,
                              int64_t num_tokens) const {
  if (num_tokens <= 0) return {};
  const std::lock_guard lock(mutex_);
  const auto key = std::tuple(language.name, repeat, num_tokens);
  if (key == last_key_) return last_;
  std::vector<Essay>& essays = files_[language.name].essays;
  if (essays.empty()) read_essays(language, essays);
  // Tokens of sentences do not quite add up to those of the text, by a constant part of them.
  int64_t asked = num_tokens;
  Haystack haystack;
  for (int round = 0; round < 3; ++round) {
    const bool is_all = collect(language, repeat, asked, haystack);
    haystack.num_tokens = ruler_->count(haystack.text);
    if (is_all && haystack.num_tokens < num_tokens)
      throw DataError(tr("{}: all texts together have {} tokens, {} are needed",
                         find(language.haystack).string(), haystack.num_tokens, num_tokens),
                      tr("fetch the file again if it is not whole, or ask for shorter lengths"));
    asked += num_tokens - haystack.num_tokens;
  }
  while (haystack.num_tokens > num_tokens) {
    haystack.ends.pop_back(), haystack.tokens.pop_back();
    haystack.text.resize(haystack.ends.empty() ? 0 : haystack.ends.back());
    haystack.num_tokens = ruler_->count(haystack.text);
  }
  last_key_ = key;
  return last_ = std::move(haystack);
}

}  // namespace danlu::eval
