#include "serve/chat_repl.h"

#include <fmt/format.h>

#include <csignal>
#include <istream>
#include <optional>
#include <ostream>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/side_by_side.h"

namespace danlu::serve {
namespace {

constexpr const char* kHelp =
    "/clear         forget the conversation\n"
    "/system TEXT   set the system message (and forget the conversation)\n"
    "/image PATH    a picture of the next message, before it or where it has <image>\n"
    "/video PATH    the same of a video, <video>\n"
    "/multi         switch: messages end with a line holding only #\n"
    "\"\"\"            begins and ends one message of several lines\n"
    "/exit          leave (also Ctrl-D); Ctrl-C stops an answer, twice it leaves\n";

enum class ReplCommand {
  kNone,
  kExit,
  kClear,
  kSystem,
  kResetSystem,
  kImage,
  kVideo,
  kMulti,
  kSingle,
  kHelp,
  kUnknown
};

struct ReplLine {
  ReplCommand command = ReplCommand::kNone;
  std::string argument;
};

/// Without the blanks, and the quotes, that a terminal puts around a path dropped on it.
std::string trimmed_path(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  std::string path = text.substr(first, text.find_last_not_of(" \t") - first + 1);
  const bool is_quoted = path.size() > 1 && (path.front() == '\'' || path.front() == '"') &&
                         path.back() == path.front();
  return is_quoted ? path.substr(1, path.size() - 2) : path;
}

ReplLine parse_line(const std::string& line) {
  static const std::pair<const char*, ReplCommand> kWords[] = {
      {"/exit", ReplCommand::kExit},
      {"/quit", ReplCommand::kExit},
      {"exit", ReplCommand::kExit},
      {"quit", ReplCommand::kExit},
      {"q", ReplCommand::kExit},
      {"/clear", ReplCommand::kClear},
      {"clear", ReplCommand::kClear},
      {"new", ReplCommand::kClear},
      {"/new", ReplCommand::kClear},
      {"/multi", ReplCommand::kMulti},
      {"multi-line", ReplCommand::kMulti},
      {"/single", ReplCommand::kSingle},
      {"single-line", ReplCommand::kSingle},
      {"reset-system", ReplCommand::kResetSystem},
      {"/help", ReplCommand::kHelp},
  };
  for (const auto& [word, command] : kWords) {
    if (line == word) return {command, {}};
  }
  if (line == "/system") return {ReplCommand::kResetSystem, {}};
  if (line.rfind("/system ", 0) == 0) return {ReplCommand::kSystem, line.substr(8)};
  for (const auto& [word, command] :
       {std::pair("/image ", ReplCommand::kImage), std::pair("/video ", ReplCommand::kVideo)}) {
    if (line.starts_with(word)) return {command, trimmed_path(line.substr(7))};
    if (line + " " == word) return {command, {}};
  }
  if (line.rfind('/', 0) == 0 && line.find(' ') == std::string::npos)
    return {ReplCommand::kUnknown, line};
  return {};
}

/// Reads lines up to one equal to `end`; what was typed before the end of input counts.
std::string read_until(std::istream& in, const std::string& end, std::string text) {
  std::string line;
  while (std::getline(in, line) && line != end) text += text.empty() ? line : "\n" + line;
  return text;
}

class Repl {
 public:
  Repl(const std::vector<Chatter>& chatters, const ReplSettings& settings, std::istream& in,
       std::ostream& out)
      : chatters_(chatters), settings_(settings), in_(in), out_(out) {}

  int run() {
    watch_interrupts();
    std::string line;
    do {
      while (in_ && !leaves_ && (prompt(), std::getline(in_, line))) {
        if (in_.eof() && pending_interrupt() == SIGINT) break;  // in the middle of a line
        forget_interrupt();
        take(std::move(line));
      }
    } while (!leaves_ && goes_on_after_interrupt());
    leave_if_terminated();
    return num_answers_;
  }

 private:
  void prompt() {
    std::ostream& prompts = settings_.prompts ? *settings_.prompts : out_;
    if (settings_.show_prompt)
      prompts << translated(multi_ ? ">>> (end with #) " : ">>> ") << std::flush;
  }

  void take(std::string line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const ReplLine parsed = parse_line(line);
    if (parsed.command != ReplCommand::kNone) return obey(parsed);
    if (line.rfind("\"\"\"", 0) == 0) {
      line = read_until(in_, "\"\"\"", line.substr(3));
    } else if (multi_) {
      line = line == "#" ? "" : read_until(in_, "#", line);
    }
    if (pending_interrupt() != 0) return;  // it was for the lines that were being typed
    if (line.find_first_not_of(" \t\n") != std::string::npos) answer(line);
  }

  void obey(const ReplLine& line) {
    switch (line.command) {
      case ReplCommand::kExit:
        leaves_ = true;
        break;
      case ReplCommand::kClear:
        for (const Chatter& chatter : chatters_) chatter.session->clear();
        out_ << translated("(conversation cleared)\n");
        break;
      case ReplCommand::kSystem:
        set_system(line.argument);
        out_ << translated("(system message set, conversation cleared)\n");
        break;
      case ReplCommand::kResetSystem:
        set_system("");
        out_ << translated("(the template's own system message)\n");
        break;
      case ReplCommand::kImage:
        add_media(text::MediaKind::kImage, line.argument);
        break;
      case ReplCommand::kVideo:
        add_media(text::MediaKind::kVideo, line.argument);
        break;
      case ReplCommand::kMulti:
        multi_ = !multi_;
        out_ << translated(multi_ ? "(several lines; end with #)\n" : "(one line)\n");
        break;
      case ReplCommand::kSingle:
        multi_ = false;
        out_ << translated("(one line)\n");
        break;
      case ReplCommand::kUnknown:
        out_ << tr("unknown command {}\n", line.argument) << translated(kHelp);
        break;
      default:
        out_ << translated(kHelp);
        break;
    }
  }

  void set_system(const std::string& text) {
    for (const Chatter& chatter : chatters_) chatter.session->set_system(text);
  }

  void add_media(text::MediaKind kind, const std::string& path) {
    if (path.empty()) {
      out_ << translated(kind == text::MediaKind::kImage ? "which picture? /image PATH\n"
                                                         : "which video? /video PATH\n");
      return;
    }
    try {
      for (const Chatter& chatter : chatters_) chatter.session->add_media(kind, path);
    } catch (const Error& e) {
      log::write(log::Level::kError, e.what());
      return;
    }
    out_ << translated(kind == text::MediaKind::kImage ? "(a picture of the next message)\n"
                                                       : "(a video of the next message)\n");
  }

  /// Ctrl-C where nothing is answered ends a read, and drops what was typed: an answer may have
  /// ended while it was pressed. The next one, before another line, ends the program.
  bool goes_on_after_interrupt() {
    if (pending_interrupt() != SIGINT || interrupt_was_said_ || !settings_.show_prompt)
      return false;
    interrupt_was_said_ = true;
    in_.clear();
    std::ostream& prompts = settings_.prompts ? *settings_.prompts : out_;
    prompts << translated("\n(Ctrl-D, /exit or another Ctrl-C leaves)\n");
    return true;
  }

  void forget_interrupt() {
    leave_if_terminated();
    clear_interrupt();
    interrupt_was_said_ = false;
  }

  /// Ctrl-C is for one answer; SIGTERM and SIGHUP are for the program, wherever they come.
  static void leave_if_terminated() {
    const int signal = pending_interrupt();
    if (signal != 0 && signal != SIGINT) throw_interrupted(signal, "[chat] terminated");
  }

  void answer(const std::string& message) {
    const bool compares = chatters_.size() > 1;
    const bool in_columns = compares && fits_side_by_side(chatters_.size(), settings_.columns);
    std::vector<NamedText> texts;
    bool any = false;
    for (const Chatter& chatter : chatters_) {
      if (compares && !in_columns) out_ << "── " << chatter.name << " ──\n" << std::flush;
      texts.push_back({chatter.name, ""});
      const auto show = [&](const std::string& piece) {
        texts.back().text += piece;
        if (!in_columns) out_ << piece << std::flush;
      };
      any = answer_of(*chatter.session, message, show) || any;
    }
    if (in_columns && any) out_ << side_by_side(texts, settings_.columns) << std::flush;
    num_answers_ += any ? 1 : 0;
  }

  /// False where there is none, which was said.
  template <typename Show>
  bool answer_of(ChatSession& session, const std::string& message, const Show& show) {
    clear_interrupt();
    const int64_t dropped = session.dropped_turns();
    try {
      session.ask(message, [&](const std::string& piece) {
        show(piece);
        return pending_interrupt() == 0;
      });
    } catch (const CommError&) {  // other processes that hold parts of the model are gone
      throw;
    } catch (const Error& e) {
      log::write(log::Level::kError, e.what());
      if (session.forget_media())
        out_ << translated("(the pictures and videos of this message are forgotten)\n");
      return false;
    }
    show(std::string(translated(pending_interrupt() != 0 ? " [stopped]\n" : "\n")));
    leave_if_terminated();
    clear_interrupt();
    if (session.dropped_turns() > dropped) {
      log::info("(dropped the oldest {} turn(s): the history did not fit the window)",
                session.dropped_turns() - dropped);
    }
    if (settings_.show_speed) report_speed(session.last_stats());
    out_ << std::flush;
    return true;
  }

  /// The first token comes with the prompt: one alone has no speed.
  static void report_speed(const infer::GenerationStats& stats) {
    if (stats.new_tokens > 1 && stats.decode_s > 0) {
      log::info("({} tokens, {:.1f} tokens/s; prompt {} tokens in {:.2f} s)", stats.new_tokens,
                static_cast<double>(stats.new_tokens - 1) / stats.decode_s, stats.prompt_tokens,
                stats.prefill_s);
    } else if (stats.new_tokens == 1) {
      log::info("(1 token; prompt {} tokens in {:.2f} s)", stats.prompt_tokens, stats.prefill_s);
    } else {
      log::info("({} tokens; prompt {} tokens in {:.2f} s)", stats.new_tokens, stats.prompt_tokens,
                stats.prefill_s);
    }
  }

  const std::vector<Chatter>& chatters_;
  const ReplSettings& settings_;
  std::istream& in_;
  std::ostream& out_;
  bool multi_ = false, leaves_ = false, interrupt_was_said_ = false;
  int num_answers_ = 0;
};

}  // namespace

int run_chat(const std::vector<Chatter>& chatters, const ReplSettings& settings, std::istream& in,
             std::ostream& out) {
  return Repl(chatters, settings, in, out).run();
}

int run_chat(ChatSession& session, const ReplSettings& settings, std::istream& in,
             std::ostream& out) {
  return run_chat(std::vector<Chatter>{{"", &session}}, settings, in, out);
}

}  // namespace danlu::serve
