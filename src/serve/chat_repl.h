// serve/chat_repl.h: the chat at the terminal: reading lines, commands, streaming to the screen.
#pragma once
#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "serve/chat_session.h"

namespace danlu::serve {

struct ReplSettings {
  bool show_prompt = true;          ///< false where nobody types: only answers are printed
  bool show_speed = true;           ///< a line with tokens/s after each answer
  std::ostream* prompts = nullptr;  ///< where they go if not among the answers
  /// The terminal's width in characters. Answers of several models are shown next to each other, as
  /// soon as all are there; where it is 0 or too narrow, one below the other, each while it is
  /// made.
  size_t columns = 0;
};

/// A model that is talked to. name: above its answers, where there are several.
struct Chatter {
  std::string name;
  ChatSession* session;
};

/// Reads until /exit or the end of the input. Commands: /help, /clear, /system TEXT, /image PATH,
/// /video PATH, /multi, /exit;
/// the words of the systems we replace work too (exit, quit, q, clear, new, multi-line,
/// single-line, reset-system). A message may span lines between two lines of """, or in /multi mode
/// up to a line holding only #. Ctrl-C stops one answer; at a prompt it drops what was typed, and a
/// second one in a row ends the process (130). An error in one message (too long, …) is printed and
/// the conversation goes on. Returns the number of answers. Errors: TerminatedError after SIGTERM,
/// HungUpError after SIGHUP.
/// Several models answer every message, each in a conversation of its own; the number is of
/// messages that any has answered.
int run_chat(const std::vector<Chatter>& chatters, const ReplSettings& settings, std::istream& in,
             std::ostream& out);
int run_chat(ChatSession& session, const ReplSettings& settings, std::istream& in,
             std::ostream& out);

}  // namespace danlu::serve
