#include "eval/run/answer_json.h"

#include <charconv>
#include <string>
#include <system_error>

#include "data/readers/text_encoding.h"

namespace danlu::eval {
namespace {

/// JSON has no infinities, and its decimal digits are longer than the bits they stand for.
std::string hex_number(double number) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, number, std::chars_format::hex).ptr};
}

bool read_hex(const Json& json, const char* key, double* number) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return false;
  const std::string& text = found->get_ref<const std::string&>();
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *number, std::chars_format::hex);
  return error == std::errc{} && end == text.data() + text.size();
}

bool read_count(const Json& json, const char* key, int64_t* number) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return false;
  *number = found->get<int64_t>();
  return true;
}

/// A text as it is; bytes that are none (a token may end within a character) as a list of whole
/// numbers.
Json text_or_bytes(const std::string& text) {
  if (data::find_invalid_utf8(text) == text.npos) return text;
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

bool read_text(const Json& json, std::string* text) {
  const auto found = json.find("text");
  if (found == json.end()) return false;
  text->clear();
  if (found->is_string()) *text = found->get<std::string>();
  if (found->is_string() || !found->is_array()) return found->is_string();
  for (const Json& byte : *found) {
    if (!byte.is_number_unsigned() || byte.get<uint64_t>() > 255) return false;
    *text += static_cast<char>(byte.get<uint64_t>());
  }
  return true;
}

}  // namespace

Json answer_json(const Answer& answer) {
  return {{"log_likelihood", hex_number(answer.log_likelihood)},
          {"is_greedy", answer.is_greedy},
          {"num_tokens", answer.num_tokens},
          {"whole_log_likelihood", hex_number(answer.whole_log_likelihood)},
          {"num_whole_tokens", answer.num_whole_tokens},
          {"num_cut_tokens", answer.num_cut_tokens},
          {"text", text_or_bytes(answer.text)}};
}

std::optional<Answer> read_answer(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto greedy = json.find("is_greedy");
  if (greedy == json.end() || !greedy->is_boolean()) return std::nullopt;
  Answer answer;
  answer.is_greedy = greedy->get<bool>();
  const bool is_whole = read_hex(json, "log_likelihood", &answer.log_likelihood) &&
                        read_hex(json, "whole_log_likelihood", &answer.whole_log_likelihood) &&
                        read_count(json, "num_tokens", &answer.num_tokens) &&
                        read_count(json, "num_whole_tokens", &answer.num_whole_tokens) &&
                        read_count(json, "num_cut_tokens", &answer.num_cut_tokens) &&
                        read_text(json, &answer.text);
  return is_whole ? std::optional(answer) : std::nullopt;
}

}  // namespace danlu::eval
