// serve/chat_repl.h: the chat at the terminal: reading lines, commands, streaming to the screen.
#pragma once
#include <iosfwd>
#include <string>

#include "serve/chat_session.h"

namespace danlu::serve {

struct ReplSettings {
  bool show_prompt = true;          ///< false where nobody types: only answers are printed
  bool show_speed = true;           ///< a line with tokens/s after each answer
  std::ostream* prompts = nullptr;  ///< where they go if not among the answers
};

/// Reads until /exit or the end of the input. Commands: /help, /clear, /system TEXT, /image PATH,
/// /video PATH, /multi, /exit;
/// the words of the systems we replace work too (exit, quit, q, clear, new, multi-line,
/// single-line, reset-system). A message may span lines between two lines of """, or in /multi mode
/// up to a line holding only #. Ctrl-C stops one answer. An error in one message (too long, …) is
/// printed and the conversation goes on. Returns the number of answers. Errors: TerminatedError
/// after SIGTERM, HungUpError after SIGHUP.
int run_chat(ChatSession& session, const ReplSettings& settings, std::istream& in,
             std::ostream& out);

}  // namespace danlu::serve
