#include "eval/needle/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::eval {
namespace {

/// `place` in `pattern`, where it stands once, replaced.
std::string filled_in(const std::string& pattern, std::string_view place, std::string_view text) {
  const size_t at = pattern.find(place);
  std::string filled = pattern.substr(0, at);
  filled.reserve(pattern.size() + text.size());
  filled += text;
  filled += std::string_view(pattern).substr(at + place.size());
  return filled;
}

/// The text first: a document may hold "{question}".
std::string prompt_of(const std::string& prompt, std::string_view document,
                      std::string_view question) {
  const size_t document_at = prompt.find("{document}");
  const size_t question_at = prompt.find("{question}");
  if (document_at > question_at)
    return filled_in(filled_in(prompt, "{document}", document), "{question}", question);
  return filled_in(prompt.substr(0, document_at + 10), "{document}", document) +
         filled_in(prompt.substr(document_at + 10), "{question}", question);
}

/// Where a question begins to say in which form the answer is to be; its end if it does not.
size_t format_at(const NeedleLanguage& language, const std::string& question) {
  return language.format.empty() ? question.size()
                                 : std::min(question.find(language.format), question.size());
}

std::string guided(const NeedleLanguage& language, const std::string& question) {
  const size_t at = format_at(language, question);
  if (at == question.size() || language.guide.empty()) return question;
  return question.substr(0, at) + language.guide + question.substr(at);
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// Up to where `mark` first stands.
std::string before(const std::string& text, const std::string& mark) {
  return mark.empty() ? text : text.substr(0, text.find(mark));
}

/// Questions one after the other, then the forms of their answers (between the first two quotes).
std::string joined_question(const NeedleLanguage& language,
                            const std::vector<const Needle*>& needles) {
  std::string questions, formats;
  for (const Needle* needle : needles) {
    const std::string& asked = needle->question;
    questions += (questions.empty() ? "" : language.join) + before(asked, language.question_mark) +
                 language.question_mark;
    const size_t open = asked.find('\'');
    const size_t close = open == asked.npos ? open : asked.find('\'', open + 1);
    if (close == asked.npos) continue;
    formats += (formats.empty() ? "" : language.join) +
               before(asked.substr(open + 1, close - open - 1), language.full_stop);
  }
  if (formats.empty()) return questions;
  return guided(language, questions + filled_in(language.joined_format, "{format}", formats));
}

/// As many needles as there may be whose keywords and questions differ: the same of all repeats.
std::vector<const Needle*> unlike(const std::vector<Needle>& needles, size_t count) {
  std::vector<const Needle*> chosen;
  std::set<std::string> seen;
  for (const size_t i : needle_order(needles.size(), 0)) {
    if (chosen.size() == count) break;
    const Needle& needle = needles[i];
    if (seen.contains(needle.keyword) || seen.contains(needle.question)) continue;
    seen.insert(needle.keyword), seen.insert(needle.question);
    chosen.push_back(&needle);
  }
  return chosen;
}

/// random.seed(repeat), then random.choice.
size_t choice(size_t count, int64_t repeat) { return PythonRandom(repeat).below(count); }

std::string alone(const std::string& needle) { return "\n" + needle + "\n"; }

}  // namespace

std::string with_needles(const Haystack& haystack, const std::vector<std::string>& needles,
                         const std::vector<double>& depths) {
  std::string text;
  const int64_t all = haystack.tokens.empty() ? 0 : haystack.tokens.back();
  size_t done = 0;
  for (size_t i = 0; i < needles.size(); ++i) {
    const auto wanted =
        static_cast<int64_t>(std::floor(static_cast<double>(all) * depths[i] / 100));
    const auto behind = std::ranges::upper_bound(haystack.tokens, wanted);
    const auto sentences = static_cast<size_t>(behind - haystack.tokens.begin());
    const size_t at = sentences == 0 ? 0 : haystack.ends[sentences - 1];
    text.append(haystack.text, done, at - done);
    text += needles[i];
    done = at;
  }
  return text.append(haystack.text, done);
}

NeedleSource::NeedleSource(std::shared_ptr<const NeedleData> data, const std::string& leaf)
    : data_(std::move(data)) {
  const NeedlePlan& plan = data_->plan();
  for (const NeedlePlan::Window& window : plan.windows) {
    for (const auto& [kind, settings] : plan.kinds) {
      if (leaf != fmt::format("{}_{}_{}", plan.name, window.name, needle_kind_name(kind))) continue;
      window_ = &window;
      kind_ = kind;
    }
  }
  if (!window_) throw UsageError(tr("{} has no task {}", plan.name, leaf));
  const NeedlePlan::Kind& settings = plan.kinds.at(kind_);
  const bool everywhere = kind_ == NeedleKind::kMultiRetrieval;
  const std::vector<int64_t> one = {1};
  for (int64_t repeat = 0; repeat < settings.repeats; ++repeat) {
    for (const NeedleLanguage& language : plan.languages) {
      for (const int64_t count : settings.needles.empty() ? one : settings.needles) {
        for (const int64_t length : window_->lengths) {
          for (const double depth : everywhere ? std::vector<double>{-1} : window_->depths)
            cells_.push_back({repeat, &language, count, length, depth});
        }
      }
    }
  }
  check_needles();
  for (const NeedleLanguage& language : plan.languages) data_->require_texts(language);
  if (!data_->ruler().name().empty()) check_texts();
}

void NeedleSource::check_texts() const {
  const int64_t longest = std::ranges::max(window_->lengths);
  for (const NeedleLanguage& language : data_->plan().languages)
    data_->haystack(language, 0, longest - language.buffers.at(kind_).at(window_->name));
}

void NeedleSource::check_needles() const {
  const NeedlePlan& plan = data_->plan();
  for (const NeedleLanguage& language : plan.languages) {
    if (kind_ == NeedleKind::kMultiReasoning) {
      for (const int64_t count : plan.kinds.at(kind_).needles) data_->chains(language, count);
      continue;
    }
    const std::vector<Needle>& needles = data_->needles(language);
    if (kind_ == NeedleKind::kSingleRetrieval) continue;
    const size_t wanted = window_->depths.size();
    const size_t found = unlike(needles, wanted).size();
    if (found == wanted) continue;
    throw DataError(tr("{}: {} needles with different keywords are needed ({}), there are {}",
                       plan.needles, wanted, language.name, found),
                    tr("ask for fewer depths in a task file of your own"));
  }
}

NeedleSource::Hidden NeedleSource::hide_one(const Cell& cell) const {
  const std::vector<Needle>& needles = data_->needles(*cell.language);
  const Needle& needle = needles[choice(needles.size(), cell.repeat)];
  return {.texts = {alone(needle.text)},
          .keywords = {needle.keyword},
          .depths = {cell.depth},
          .keyword_depths = {cell.depth},
          .question = guided(*cell.language, needle.question),
          .reference = needle.text};
}

NeedleSource::Hidden NeedleSource::hide_chain(const Cell& cell) const {
  const auto chains = data_->chains(*cell.language, cell.num_needles);
  const NeedleChain& chain = *chains[choice(chains.size(), cell.repeat)];
  const double gap = data_->plan().kinds.at(kind_).gap;
  Hidden hidden{.texts = {},
                .keywords = {chain.answer},
                .depths = {},
                .keyword_depths = {cell.depth},
                .question = chain.question + trimmed(cell.language->guide),
                .reference = ""};
  for (const std::string& needle : chain.needles) {
    hidden.depths.push_back(
        std::min(100.0, cell.depth + gap * static_cast<double>(hidden.texts.size())));
    hidden.texts.push_back(alone(needle));
  }
  return hidden;
}

NeedleSource::Hidden NeedleSource::hide_everywhere(const Cell& cell) const {
  const std::vector<double>& depths = window_->depths;
  auto needles = unlike(data_->needles(*cell.language), depths.size());
  PythonRandom(cell.repeat).shuffle(std::span(needles));
  Hidden hidden{.texts = {},
                .keywords = {},
                .depths = depths,
                .keyword_depths = depths,
                .question = joined_question(*cell.language, needles),
                .reference = ""};
  for (const Needle* needle : needles) {
    hidden.texts.push_back(alone(needle->text));
    hidden.keywords.push_back(needle->keyword);
  }
  return hidden;
}

NeedleSource::Hidden NeedleSource::hide(const Cell& cell) const {
  switch (kind_) {
    case NeedleKind::kSingleRetrieval:
      return hide_one(cell);
    case NeedleKind::kMultiReasoning:
      return hide_chain(cell);
    case NeedleKind::kMultiRetrieval:
      return hide_everywhere(cell);
  }
  throw InternalError("[needle] unknown kind");
}

Item NeedleSource::item(int64_t index) const {
  const Cell& cell = cells_.at(static_cast<size_t>(index));
  const NeedleLanguage& language = *cell.language;
  const Hidden hidden = hide(cell);
  const int64_t buffer = language.buffers.at(kind_).at(window_->name);
  const bool everywhere = kind_ == NeedleKind::kMultiRetrieval;
  int64_t needle_tokens = 0;
  for (const std::string& needle : hidden.texts) needle_tokens += data_->ruler().count(needle);
  const Haystack haystack =
      data_->haystack(language, cell.repeat, cell.length - buffer - needle_tokens);
  Item item;
  item.doc_id = index;
  item.doc = {{"kind", needle_kind_name(kind_)},
              {"language", language.name},
              {"length", cell.length},
              {"depth", cell.depth < 0 ? Json() : Json(cell.depth)},
              {"repeat", cell.repeat},
              {"question", hidden.question},
              {"needles", Json::array()},
              {"keywords", hidden.keywords},
              {"depths", hidden.keyword_depths},
              {"reference", hidden.reference},
              {"context_tokens", haystack.num_tokens + needle_tokens}};
  for (const std::string& needle : hidden.texts)
    item.doc["needles"].push_back(needle.substr(1, needle.size() - 2));
  item.target = hidden.keywords.size() == 1 ? Json(hidden.keywords[0]) : Json(hidden.keywords);
  Call& call = item.calls.emplace_back();
  call.kind = CallKind::kGeneration;
  call.context = prompt_of(everywhere ? language.joined_prompt : language.prompt,
                           with_needles(haystack, hidden.texts, hidden.depths), hidden.question);
  call.rules.max_tokens = data_->plan().kinds.at(kind_).max_tokens;
  return item;
}

}  // namespace danlu::eval
