#include "eval/benchmarks/prompts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>

#include "base/error.h"
#include "base/rng.h"
#include "eval/benchmarks/prompt_template.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

/// What prompts call PromptSettings::language.
constexpr const char* kEvalLanguage = "eval_language";

/// Where a picture stands in a prompt.
constexpr const char* kImageTag = "<image>";

/// A message, and what follows it where messages are plain text.
struct Turn {
  std::string role, content, after = {};
};

bool starts_with_space(std::string_view text) {
  size_t at = 0;
  return !text.empty() && text::jinja::is_python_space(text::jinja::next_code_point(text, at));
}
bool ends_with_space(std::string_view text) {
  return text::jinja::strip(text, false, true).size() < text.size();
}

/// The two texts, with `between` if neither has white space where they meet.
std::string delimited(const std::string& first, const std::string& second,
                      const std::string& between) {
  if (first.empty() || second.empty()) return first + second;
  return first + (ends_with_space(first) || starts_with_space(second) ? "" : between) + second;
}

class ItemMaker {
 public:
  ItemMaker(const Task& task, const Rows& test, const Rows& shots, const PromptSettings& settings,
            const Model* model)
      : task_(task),
        test_(test),
        shots_(shots),
        settings_(settings),
        model_(model),
        by_template_(settings.apply_chat_template && task.chat_frame != ChatFrame::kPlain),
        in_turns_(by_template_ && asks_in_turns(task, settings)),
        in_one_message_(by_template_ && !in_turns_ && task.chat_frame == ChatFrame::kOneMessage),
        num_shots_(static_cast<size_t>(num_shots_of(task, settings))),
        random_(settings.seed),
        description_(task.description, task.name + ": description"),
        question_(task.doc_to_text, task.name + ": doc_to_text"),
        target_(task.doc_to_target, task.name + ": doc_to_target"),
        choices_(task.doc_to_choice, task.name + ": doc_to_choice"),
        gen_prefix_(task.gen_prefix, task.name + ": gen_prefix"),
        shot_question_(task.shot_to_text.empty() ? task.doc_to_text : task.shot_to_text,
                       task.name + ": fewshot_config: doc_to_text"),
        shot_target_(task.shot_to_target.empty() ? task.doc_to_target : task.shot_to_target,
                     task.name + ": fewshot_config: doc_to_target"),
        shot_prefix_(task.shot_gen_prefix.empty() ? task.gen_prefix : task.shot_gen_prefix,
                     task.name + ": fewshot_config: gen_prefix") {
    fixed_choices_ = list_in(task.doc_to_choice);
    if (task.sampler == FewShotSampler::kPermutation) {
      for (size_t i = 0; i < shots.rows.size(); ++i) permutation_.push_back(i);
      NumpyRandomState(static_cast<uint32_t>(settings.seed)).shuffle(std::span(permutation_));
    }
  }

  std::vector<Item> make() {
    if (test_.rows.empty()) throw DataError(tr("{}: there are no rows", test_.origin));
    require_shots();
    std::vector<Item> items;
    const auto count = static_cast<size_t>(num_items(std::ssize(test_.rows), settings_.limit));
    items.reserve(count);
    for (size_t i = 0; i < count; ++i) items.push_back(item_of(i));
    return items;
  }

 private:
  /// The list that a text is as JSON; null: it is none.
  static Json list_in(const std::string& source) {
    if (!source.starts_with('[') || !source.ends_with(']')) return nullptr;
    try {
      return parse_json(source, "");
    } catch (const DataError&) {
      return nullptr;
    }
  }

  void require_shots() const {
    if (num_shots_ == 0) return;
    if (!task_.image_fields.empty())
      throw UsageError(tr("{}: questions with pictures have no shots", task_.name));
    if (task_.output == OutputType::kRollingLikelihood)
      throw UsageError(tr("{}: a perplexity has no shots", task_.name));
    const size_t others = task_.leaves_question_out && task_.fewshot_split == task_.test_split;
    if (shots_.rows.size() >= num_shots_ + others) return;
    if (shots_.rows.empty() && task_.fewshot_split.empty()) {
      throw DataError(
          tr("{}: {} shots are asked for, and the task has none of its own", task_.name,
             num_shots_),
          tr("--fewshot_file FILE.jsonl gives them, a row a line with the fields that the task "
             "reads; --num_fewshot 0 asks without"));
    }
    throw DataError(
        tr("{}: {} shots are asked for, and the split {} has {} rows", task_.name, num_shots_,
           task_.fewshot_split.empty() ? shots_.origin : task_.fewshot_split, shots_.rows.size()),
        tr("--num_fewshot N asks for fewer; --fewshot_file FILE.jsonl gives others"));
  }

  /// The row with what prompts know beside its fields. `number`: of shots from 1, the question's
  /// last.
  Json known_to_prompts(const Json& row, size_t number) const {
    Json known = row;
    known["subject"] = task_.subject;
    known["subject_title"] = task_.subject_title;
    known["shots_head"] = shots_.head;
    known["number"] = number;
    known[kEvalLanguage] = settings_.language;
    return known;
  }

  std::string place_of(const Rows& rows, size_t index) const {
    return tr("{}, row {}", rows.origin, index + 1);
  }

  std::vector<std::string> choices_of(const Json& row, const std::string& place) const {
    const Json list = fixed_choices_.is_null() ? choices_.value(row, place) : fixed_choices_;
    std::vector<std::string> out;
    if (list.is_array()) {
      for (const Json& choice : list) out.push_back(python_text(choice));
    }
    if (out.empty()) {
      throw DataError(tr("{}: doc_to_choice must give a list of choices, got {}", place,
                         dump_text(list).substr(0, 80)),
                      tr("a template gives one as {{{{ [first, second] }}}}"));
    }
    return out;
  }

  /// Index of the right choice, or a list of such.
  Json right_choice(const Json& target, const std::vector<std::string>& choices,
                    const std::string& place) const {
    if (target.is_array()) {
      Json out = Json::array();
      for (const Json& one : target) out.push_back(right_choice(one, choices, place));
      return out;
    }
    int64_t index = -1;
    if (target.is_boolean()) index = target.get<bool>() ? 1 : 0;
    if (target.is_number_integer()) index = target.get<int64_t>();
    if (target.is_string()) {
      const std::string& text = target.get_ref<const std::string&>();
      const auto found = std::find(choices.begin(), choices.end(), text);
      if (found != choices.end()) {
        index = found - choices.begin();
      } else if (!text.empty() && text.size() < 10 &&
                 text.find_first_not_of("0123456789") == text.npos) {
        index = std::stoll(text);
      }
    }
    if (index < 0 || index >= static_cast<int64_t>(choices.size())) {
      throw DataError(tr("{}: doc_to_target gives {}, which is none of the {} choices", place,
                         dump_text(target).substr(0, 80), choices.size()));
    }
    return index;
  }

  Json target_of(const PromptTemplate& made, const Json& row,
                 const std::vector<std::string>& choices, const std::string& place) const {
    Json value = made.value(row, place);
    if (task_.output == OutputType::kMultipleChoice) {
      // A template that prints a list, as lm-eval reads it too.
      if (value.is_string()) {
        if (Json list = list_in(value.get_ref<const std::string&>()); !list.is_null())
          value = std::move(list);
      }
      return right_choice(value, choices, place);
    }
    return value.is_array() ? value : Json(made.text(row, place));
  }

  /// The places of a question's shots. Draws, so that it is asked for every question in turn.
  std::vector<size_t> drawn_shots(const Json& row) {
    if (num_shots_ == 0) return {};
    const bool leaves_out = task_.leaves_question_out;
    std::vector<size_t> places;
    if (task_.sampler == FewShotSampler::kFirst) {
      for (size_t i = 0; i < shots_.rows.size(); ++i) places.push_back(i);
    } else if (task_.sampler == FewShotSampler::kPermutation) {
      places = permutation_;
    } else {
      // One more where there is one: a split of exactly as many rows as are asked for serves too.
      places =
          random_.sample(shots_.rows.size(), std::min(num_shots_ + leaves_out, shots_.rows.size()));
    }
    if (leaves_out) std::erase_if(places, [&](size_t at) { return shots_.rows[at] == row; });
    places.resize(std::min(places.size(), num_shots_));
    return places;
  }

  const std::vector<Turn>& shot_turns(size_t index, size_t number) {
    const auto known = turns_of_shots_.find({index, number});
    if (known != turns_of_shots_.end()) return known->second;
    const Json row = known_to_prompts(shots_.rows[index], number);
    const std::string place = place_of(shots_, index);
    std::vector<std::string> choices;
    if (task_.output == OutputType::kMultipleChoice) choices = choices_of(row, place);
    const Json target = target_of(shot_target_, row, choices, place);
    const Json& first = target.is_array() && !target.empty() ? target.front() : target;
    const std::string answer = first.is_number_integer() && !choices.empty()
                                   ? choices.at(first.get<size_t>())
                                   : python_text(first);
    const std::string prefix = shot_prefix_.text(row, place);
    const std::string question = shot_question_.text(row, place);
    std::vector<Turn> turns = {
        {"user", question,
         prefix.empty() ? task_.target_delimiter : delimiter_for(question, prefix)},
        {"assistant", delimited(prefix, answer, " "), task_.fewshot_delimiter}};
    return turns_of_shots_.emplace(std::pair(index, number), std::move(turns)).first->second;
  }

  /// The pictures that a row's fields name, in order.
  std::vector<std::string> images_of(const Json& row, const std::string& place) const {
    std::vector<std::string> images;
    for (const std::string& field : task_.image_fields) {
      const auto found = row.find(field);
      const Json value = found == row.end() ? Json(nullptr) : *found;
      for (const Json& one : value.is_array() ? value : Json::array({value})) {
        if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
          throw DataError(tr("{}: '{}' must name the file of a picture, got {}", place, field,
                             dump_text(one).substr(0, 80)));
        }
        images.push_back(one.get<std::string>());
      }
    }
    return images;
  }

  std::string delimiter_for(const std::string& question, const std::string& prefix) const {
    if (prefix.empty() || question.empty()) return "";
    return ends_with_space(question) || starts_with_space(prefix) ? "" : task_.target_delimiter;
  }

  std::vector<Turn> turns_of(const Json& row, const Json& known, const std::string& place,
                             const std::string& prefix, size_t num_images) {
    std::vector<Turn> turns;
    const std::string own_system = settings_.system_instruction.value_or(task_.system_instruction);
    const std::string description = description_.text(known, place);
    if (in_one_message_) {
      if (!own_system.empty()) turns.push_back({"system", own_system});
      if (!description.empty()) turns.push_back({"user", description});
    } else {
      const std::string system = delimited(own_system, description, task_.fewshot_delimiter);
      if (!system.empty()) turns.push_back({"system", system});
    }
    size_t number = 0;
    for (const size_t shot : drawn_shots(row)) {
      const std::vector<Turn>& both = shot_turns(shot, ++number);
      turns.insert(turns.end(), both.begin(), both.end());
    }
    std::string question = question_.text(known, place);
    if (question.find(kImageTag) == question.npos) {
      for (size_t i = 0; i < num_images; ++i) question.insert(0, kImageTag);
    }
    turns.push_back({"user", question, delimiter_for(question, prefix)});
    return turns;
  }

  std::string chat_text(const std::vector<Turn>& turns) const {
    if (!model_) throw InternalError("a chat template without a model");
    std::vector<text::Message> messages;
    const bool has_system = turns.front().role == "system";
    if (has_system) messages.push_back({.role = "system", .content = turns.front().content});
    std::string joined;
    for (size_t i = has_system; i < turns.size(); ++i) {
      const bool is_last = i + 1 == turns.size();
      if (in_turns_) {
        messages.push_back({.role = turns[i].role, .content = turns[i].content});
      } else {
        joined += turns[i].content + (is_last ? "" : turns[i].after);
      }
    }
    if (!in_turns_) messages.push_back({.role = "user", .content = joined});
    return model_->chat_text(messages);
  }

  Item item_of(size_t index) {
    const Json& row = test_.rows[index];
    const std::string place = place_of(test_, index);
    const Json known = known_to_prompts(row, num_shots_ + 1);
    Item item;
    item.doc_id = static_cast<int64_t>(index);
    item.doc = row;
    if (task_.output == OutputType::kMultipleChoice) item.choices = choices_of(known, place);
    item.target = target_of(target_, known, item.choices, place);
    if (task_.output == OutputType::kRollingLikelihood) {
      Call call;
      call.kind = CallKind::kRolling;
      call.continuation = target_.text(known, place);
      item.calls.push_back(std::move(call));
      return item;
    }
    const std::string prefix = gen_prefix_.text(known, place);
    Call call;
    call.images = images_of(row, place);
    const std::vector<Turn> turns = turns_of(row, known, place, prefix, call.images.size());
    if (by_template_) {
      call.context = chat_text(turns);
      call.has_own_bos = model_->chat_text_has_bos();
    } else {
      for (const Turn& turn : turns) call.context += turn.content + turn.after;
    }
    call.context += prefix;
    add_calls(item, call, prefix);
    return item;
  }

  void add_calls(Item& item, Call call, const std::string& prefix) const {
    if (task_.output == OutputType::kGenerateUntil) {
      call.kind = CallKind::kGeneration;
      call.rules = task_.generation;
      for (call.repeat = 0; call.repeat < task_.repeats; ++call.repeat) item.calls.push_back(call);
      return;
    }
    call.kind = CallKind::kLikelihood;
    if (task_.output == OutputType::kLogLikelihood) {
      call.continuation = python_text(item.target);
      item.calls.push_back(std::move(call));
      return;
    }
    const bool has_delimiter = !by_template_ || (!prefix.empty() && !ends_with_space(prefix));
    for (const std::string& choice : item.choices) {
      call.continuation = (has_delimiter ? task_.target_delimiter : "") + choice;
      item.calls.push_back(call);
    }
  }

  const Task& task_;
  const Rows &test_, &shots_;
  const PromptSettings& settings_;
  const Model* model_;
  const bool by_template_, in_turns_, in_one_message_;
  size_t num_shots_;
  std::vector<size_t> permutation_;  ///< of all shots, where the task takes its first
  PythonRandom random_;
  PromptTemplate description_, question_, target_, choices_, gen_prefix_;
  PromptTemplate shot_question_, shot_target_, shot_prefix_;
  Json fixed_choices_;
  std::map<std::pair<size_t, size_t>, std::vector<Turn>> turns_of_shots_;
};

}  // namespace

bool asks_in_turns(const Task& task, const PromptSettings& settings) {
  return settings.apply_chat_template && task.chat_frame != ChatFrame::kPlain &&
         settings.fewshot_as_multiturn.value_or(task.chat_frame == ChatFrame::kTurns);
}

bool reads_eval_language(const Task& task) {
  const std::string* const sources[] = {&task.description, &task.doc_to_text, &task.shot_to_text};
  return std::ranges::any_of(sources, [](const std::string* source) {
    return source->find(kEvalLanguage) != std::string::npos;
  });
}

int64_t num_shots_of(const Task& task, const PromptSettings& settings) {
  const int64_t wanted = settings.num_fewshot.value_or(task.num_fewshot);
  if (wanted < 0) throw UsageError(tr("--num_fewshot must be at least 0, got {}", wanted));
  return task.is_num_fewshot_fixed ? 0 : wanted;
}

int64_t num_items(int64_t all, const std::optional<double>& limit) {
  if (!limit) return all;
  if (!(*limit > 0)) throw UsageError(tr("--limit must be above 0, got {}", *limit));
  const double wanted = *limit < 1 ? std::ceil(static_cast<double>(all) * *limit) : *limit;
  return wanted < static_cast<double>(all) ? static_cast<int64_t>(wanted) : all;
}

std::vector<Item> make_items(const Task& task, const Rows& test, const Rows& shots,
                             const PromptSettings& settings, const Model* model) {
  return ItemMaker(task, test, shots, settings, model).make();
}

}  // namespace danlu::eval
