// text/chat_spans.h: where the assistant's answers are in the text a Jinja template printed.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_mask.h"
#include "text/conversation.h"

namespace danlu::text {

/// A template as the search sees it. Its functions throw TemplateError if the template cannot
/// render.
struct ChatRenderer {
  /// The first `count` messages.
  std::function<std::string(size_t count, bool add_generation_prompt)> render;
  /// All messages, with the content of some replaced.
  std::function<std::string(const std::map<size_t, std::string>& contents)> render_with_contents;
  /// All messages but one.
  std::function<std::string(size_t message)> render_without;
};

/// One span per assistant message with train == true, in order.
///
/// A span begins where the prompt for that answer ends: render(messages before it, generation
/// prompt). Templates that print earlier turns differently once they are history (Qwen3 drops old
/// <think> blocks, Mistral-Nemo moves the system text) have no such prefix; then the answer is
/// found in the final text by a probe in place of its content, or by what it adds to the text of
/// the messages before it. It ends after the end-of-turn token (white space before that token
/// belongs to it); what a template prints after it is no target. closers: texts of the tokens known
/// to end answers (EOS, and what the template puts after plain ones); plain_end: what the template
/// puts there if that is no special token ("</model>"), a target wherever it stands after an
/// answer. Errors: DataError naming the message whose answer cannot be told from the rest.
std::vector<ByteSpan> find_answer_spans(const ChatRenderer& renderer,
                                        const std::vector<Message>& messages,
                                        const std::string& full, const SpecialIndex& special,
                                        const std::vector<std::string>& closers,
                                        const std::string& plain_end);

/// End of the turn whose content ends at `position`: after the special token that follows, and
/// after a closer directly after that. npos if no special token begins there.
size_t end_of_turn(std::string_view text, size_t position, const SpecialIndex& special,
                   const std::vector<std::string>& closers);

}  // namespace danlu::text
