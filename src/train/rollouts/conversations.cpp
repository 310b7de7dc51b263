#include "train/rollouts/conversations.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "api/tool_calls.h"
#include "base/rng.h"
#include "parallel/agree.h"
#include "text/conversation.h"

namespace danlu::train {

struct Conversations::Held {
  const TalkBegin* begin = nullptr;
  DrawnAnswer answer;
  Json said = Json::array();  ///< messages behind the prompt
  Json info = Json::object();
  Json state = nullptr;
  bool adds_to_answer = false;  ///< the next answer goes on with the last one's message
  bool is_over = false;
};

namespace {

Json messages_before(const Json& row) {
  const auto found = row.find("messages");
  return found != row.end() && found->is_array() ? *found : Json::array();
}

/// Calls as OpenAI writes them, and the text without them.
struct ReadAnswer {
  std::string content;
  Json calls = Json::array();
};

ReadAnswer read_calls(const std::string& text, text::ToolFormat format, const Json& row) {
  api::ToolCallOptions options{.whole_calls = true};
  if (const auto tools = row.find("tools"); tools != row.end() && tools->is_array())
    options.tools = *tools;
  const auto parser = api::make_tool_call_parser(format, options);
  std::vector<api::ToolCallEvent> events = parser->push(text);
  for (api::ToolCallEvent& event : parser->finish()) events.push_back(std::move(event));
  using Kind = api::ToolCallEvent::Kind;
  ReadAnswer read;
  for (const api::ToolCallEvent& event : events) {
    if (event.kind == Kind::kContent) read.content += event.text;
    if (event.kind == Kind::kBegin) {
      // Not drawn by chance: a run that goes on tells the same.
      read.calls.push_back({{"id", "call_" + std::to_string(read.calls.size())},
                            {"type", "function"},
                            {"function", {{"name", event.name}, {"arguments", ""}}}});
    }
    if (event.kind == Kind::kArguments && !read.calls.empty()) {
      Json& arguments = read.calls.back()["function"]["arguments"];
      arguments = arguments.get<std::string>() + event.text;
    }
  }
  return read;
}

}  // namespace

Conversations::Conversations(Parts parts, const settings::Reinforcement& told)
    : parts_(std::move(parts)),
      next_turn_(parts_.encoder),
      max_turns_(told.max_turns),
      longest_(told.longest_answer()),
      most_of_turn_(told.max_new_tokens) {}

/// Tokens that a conversation may still have.
int64_t Conversations::room(const Held& held) const {
  const int64_t used = std::ssize(held.answer.ids);
  const int64_t prompt = std::ssize(held.begin->request.prompt);
  const int64_t left = longest_ - used;
  return parts_.positions > 0 ? std::min(left, parts_.positions - prompt - used) : left;
}

/// Whether no further answer is drawn.
bool Conversations::is_last(const Held& held) const {
  return !held.answer.is_ended || held.answer.turns >= max_turns_ || room(held) <= 0;
}

infer::Request Conversations::request_of(const Held& held, int64_t turn) const {
  infer::Request request = held.begin->request;
  if (turn == 1) return request;
  request.prompt.insert(request.prompt.end(), held.answer.ids.begin(), held.answer.ids.end());
  request.max_new_tokens = std::min(most_of_turn_, room(held));
  // A turn draws other random numbers than the last one.
  request.stream = mix64(request.stream, static_cast<uint64_t>(turn));
  return request;
}

bool Conversations::ends_by_token(const DrawnAnswer& answer) const {
  return !answer.ids.empty() &&
         std::count(parts_.stop_ids.begin(), parts_.stop_ids.end(), answer.ids.back()) > 0;
}

Json Conversations::message_of(const Held& held) const {
  const DrawnAnswer& answer = held.answer;
  const std::vector<int32_t> ids(answer.ids.begin() + answer.last_turn, answer.ids.end());
  Json message{{"role", "assistant"}, {"content", parts_.tokenizer->decode(ids, true)}};
  if (!parts_.tool_format) return message;
  // Marks of calls may be special tokens.
  std::vector<int32_t> without_end = ids;
  if (ends_by_token(answer)) without_end.pop_back();
  ReadAnswer read = read_calls(parts_.tokenizer->decode(without_end, false), *parts_.tool_format,
                               held.begin->row);
  if (read.calls.empty()) return message;
  message["content"] = read.content;
  message["tool_calls"] = std::move(read.calls);
  return message;
}

void Conversations::add_answer(DrawnAnswer drawn, int64_t turn, Held& held) const {
  DrawnAnswer& answer = held.answer;
  if (!held.adds_to_answer) answer.last_turn = std::ssize(answer.ids);
  answer.ids.insert(answer.ids.end(), drawn.ids.begin(), drawn.ids.end());
  answer.is_drawn.resize(answer.ids.size(), 1);
  answer.is_ended = drawn.is_ended;
  answer.turns = turn;
  if (held.adds_to_answer) held.said.erase(held.said.size() - 1);
  held.said.push_back(message_of(held));
}

eval::Talk Conversations::talk_of(const Held& held) const {
  const DrawnAnswer& answer = held.answer;
  eval::Talk talk;
  talk.id = held.begin->id;
  talk.turn = answer.turns;
  talk.is_last = is_last(held);
  talk.is_ended = answer.is_ended;
  std::vector<int32_t> before = held.begin->request.prompt;
  before.insert(before.end(), answer.ids.begin(), answer.ids.begin() + answer.last_turn);
  talk.prompt = parts_.tokenizer->decode(before);
  talk.answer = parts_.tokenizer->decode(
      std::vector<int32_t>(answer.ids.begin() + answer.last_turn, answer.ids.end()), true);
  talk.row = held.begin->row;
  talk.messages = messages_before(talk.row);
  for (const Json& message : held.said) talk.messages.push_back(message);
  talk.row.erase("messages");
  talk.state = held.state;
  return talk;
}

void Conversations::add_messages(const Json& messages, Held& held) const {
  const text::Conversation parsed = text::parse_conversation(messages, "an environment's messages");
  const Json calls = held.said.back().value("tool_calls", Json::array());
  const text::NextTurn::Ids next = next_turn_.behind(calls, parsed.messages);
  std::vector<int32_t> ids;
  // Stop words, and stop tokens that are not the template's, end answers, too.
  if (!ends_by_token(held.answer)) ids = next.end;
  ids.insert(ids.end(), next.messages.begin(), next.messages.end());
  if (std::ssize(ids) >= room(held)) {
    held.is_over = true;
    held.answer.is_ended = false;
    return;
  }
  held.answer.ids.insert(held.answer.ids.end(), ids.begin(), ids.end());
  held.answer.is_drawn.resize(held.answer.ids.size(), 0);
  held.adds_to_answer = false;
  for (const Json& message : messages) held.said.push_back(message);
}

void Conversations::add_text(const eval::Reply& reply, Held& held) const {
  DrawnAnswer& answer = held.answer;
  if (ends_by_token(answer)) answer.ids.pop_back();
  if (reply.kept_bytes) {
    // The first tokens whose text has so many bytes: all that have fewer, and one more.
    const auto first = answer.ids.begin() + answer.last_turn;
    const auto counts = std::views::iota(std::ptrdiff_t{0}, answer.ids.end() - first);
    const auto kept = std::ranges::partition_point(counts, [&](std::ptrdiff_t count) {
      const std::vector<int32_t> beginning(first, first + count);
      return parts_.tokenizer->decode(beginning, true).size() < *reply.kept_bytes;
    });
    answer.ids.erase(first + (kept - counts.begin()), answer.ids.end());
  }
  const std::vector<text::TokenId> ids = parts_.tokenizer->encode(*reply.goes_on, false);
  answer.is_drawn.resize(answer.ids.size(), 1);
  if (std::ssize(ids) >= room(held)) {
    held.is_over = true;
    answer.is_ended = false;
    return;
  }
  answer.ids.insert(answer.ids.end(), ids.begin(), ids.end());
  answer.is_drawn.resize(answer.ids.size(), 0);
  held.adds_to_answer = true;
}

void Conversations::go_on(const eval::Reply& reply, Held& held) const {
  DrawnAnswer& answer = held.answer;
  if (reply.reward) answer.of_environment = answer.of_environment.value_or(0) + *reply.reward;
  if (reply.info.is_object()) held.info.update(reply.info);
  held.state = reply.state;
  if (reply.is_done || is_last(held)) {
    held.is_over = true;
  } else if (reply.goes_on) {
    add_text(reply, held);
  } else {
    add_messages(reply.messages, held);
  }
}

std::vector<DrawnAnswer> Conversations::hold(const std::vector<TalkBegin>& begins,
                                             const DrawTurn& draw, const AskOnce& ask) const {
  std::vector<Held> all(begins.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].begin = &begins[i];
  for (int64_t turn = 1;; ++turn) {
    std::vector<Held*> open;
    for (Held& held : all) {
      if (!held.is_over) open.push_back(&held);
    }
    if (open.empty()) break;
    std::vector<infer::Request> requests;
    for (const Held* held : open) requests.push_back(request_of(*held, turn));
    std::vector<DrawnAnswer> drawn = draw(turn, requests);
    std::vector<eval::Talk> talks;
    for (size_t i = 0; i < open.size(); ++i) {
      add_answer(std::move(drawn.at(i)), turn, *open[i]);
      talks.push_back(talk_of(*open[i]));
    }
    const Json replies = ask(turn, [&]() -> Json {
      const std::vector<eval::Reply> said = parts_.environment->replies(talks);
      if (said.size() != talks.size()) return nullptr;
      Json list = Json::array();
      for (const eval::Reply& reply : said) list.push_back(eval::reply_json(reply));
      return list;
    });
    if (replies.is_null()) break;  // a signal came
    for (size_t i = 0; i < open.size(); ++i) go_on(eval::reply_from(replies.at(i)), *open[i]);
  }
  std::vector<DrawnAnswer> answers;
  for (Held& held : all) {
    Json messages = messages_before(held.begin->row);
    for (Json& message : held.said) messages.push_back(std::move(message));
    held.answer.talk = dump_text({{"messages", std::move(messages)}, {"info", held.info}});
    held.answer.prompt = held.begin->request.prompt;
    answers.push_back(std::move(held.answer));
  }
  return answers;
}

Json asked_by_first(const parallel::Group& group, const std::function<Json()>& ask) {
  if (group.size() == 1) return ask();
  std::string said;
  parallel::together(group, [&] {
    if (group.rank() == 0) said = dump_text(ask());
  });
  return parse_json(parallel::text_from(group, 0, said), "an environment's replies");
}

}  // namespace danlu::train
