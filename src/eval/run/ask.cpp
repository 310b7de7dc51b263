#include "eval/run/ask.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/message.h"
#include "eval/run/answer_json.h"

namespace danlu::eval {
namespace {

/// A call that the model is yet to answer, and whose it is.
struct OpenCall {
  size_t item, call;
};

}  // namespace

Asker::Asker(Model& model, Journal* journal, const Division& division, int64_t num_items)
    : model_(model),
      journal_(journal),
      division_(division),
      progress_(tr("eval"), static_cast<uint64_t>(num_items), tr("questions")) {}

std::vector<std::vector<Answer>> Asker::ask(const std::vector<Item>& items) {
  const auto place_of = [&](int64_t rank) {
    return items.size() * static_cast<size_t>(rank) / static_cast<size_t>(division_.size);
  };
  std::vector<std::vector<Answer>> answers =
      exchanged(ask_own(items, place_of(division_.rank), place_of(division_.rank + 1)));
  all_done_ += std::ssize(items);
  own_done_ = 0;
  progress_.update(static_cast<uint64_t>(all_done_));
  return answers;
}

std::vector<std::vector<Answer>> Asker::ask_own(const std::vector<Item>& items, size_t from,
                                                size_t end) {
  std::vector<std::vector<Answer>> answers(end - from);
  std::vector<size_t> num_open(end - from);
  std::vector<OpenCall> open;
  std::vector<Call> calls;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Item& item = items[from + i];
    answers[i].resize(item.calls.size());
    for (size_t j = 0; j < item.calls.size(); ++j) {
      if (const std::optional<Answer> known =
              journal_ ? journal_->find(item.calls[j]) : std::nullopt) {
        answers[i][j] = *known;
        ++num_known_;
        continue;
      }
      open.push_back({i, j});
      calls.push_back(item.calls[j]);
      ++num_open[i];
    }
    if (num_open[i] == 0) ++own_done_;
  }
  // What other ranks have done of these is about what this one has; of those before, all is known.
  const auto show = [&] {
    const int64_t of_these = std::min(own_done_ * division_.size, std::ssize(items));
    progress_.update(static_cast<uint64_t>(all_done_ + of_these));
  };
  show();
  model_.answer(calls, [&](size_t index, const Answer& answer) {
    const OpenCall& place = open[index];
    answers[place.item][place.call] = answer;
    if (journal_) journal_->add(calls[index], answer);
    if (--num_open[place.item] > 0) return;
    ++own_done_;
    show();
  });
  return answers;
}

std::vector<std::vector<Answer>> Asker::exchanged(std::vector<std::vector<Answer>> own) const {
  if (division_.size == 1) return own;
  Json said = Json::array();
  for (const std::vector<Answer>& answers : own) {
    Json of_item = Json::array();
    for (const Answer& answer : answers) of_item.push_back(answer_json(answer));
    said.push_back(std::move(of_item));
  }
  std::vector<std::vector<Answer>> all;
  for (const std::string& text : division_.everybodys(said.dump())) {
    for (const Json& of_item : parse_json(text, "rank")) {
      std::vector<Answer>& answers = all.emplace_back();
      for (const Json& answer : of_item) {
        const std::optional<Answer> read = read_answer(answer);
        if (!read) throw InternalError("[eval] a rank sent what is no answer");
        answers.push_back(*read);
      }
    }
  }
  return all;
}

}  // namespace danlu::eval
