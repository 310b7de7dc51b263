#include "eval/environments/program_environment.h"

#include <sys/wait.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "eval/sandbox/child_process.h"

namespace danlu::eval {
namespace {

constexpr size_t kMaxReplyBytes = size_t{1} << 20;

std::string told_line(const Talk& talk) {
  const Json line{{"id", talk.id},
                  {"turn", talk.turn},
                  {"last", talk.is_last},
                  {"finish_reason", talk.is_ended ? "stop" : "length"},
                  {"prompt", talk.prompt},
                  {"answer", talk.answer},
                  {"messages", talk.messages},
                  {"row", talk.row},
                  {"state", talk.state}};
  return dump_text(line) + "\n";
}

std::vector<std::string> filled_lines(const std::string& output) {
  std::istringstream stream(output);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

class ProgramEnvironment : public Environment {
 public:
  ProgramEnvironment(std::vector<std::string> words, std::string command, int64_t timeout_ms)
      : words_(std::move(words)), command_(std::move(command)), timeout_ms_(timeout_ms) {}

  std::string name() const override { return "program:" + command_; }

  std::vector<Reply> replies(std::span<const Talk> talks) const override {
    std::string input;
    for (const Talk& talk : talks) input += told_line(talk);
    const ChildResult result =
        ask_child(words_, input, timeout_ms_, (talks.size() + 1) * kMaxReplyBytes,
                  {.ends_input = true, .shares_errors = true, .gives_up = [] {
                     return pending_interrupt() != 0;
                   }});
    if (result.start_error != 0) {
      throw UsageError(tr("[environment] {} cannot be started: {}", words_.front(),
                          std::strerror(result.start_error)),
                       tr("name a program of PATH, or its whole path"));
    }
    if (result.end == ChildEnd::kGivenUp) return {};
    require_whole(result, talks.size());
    return read(filled_lines(result.output), talks);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(tr("[environment] {}: {}", command_, what),
                    tr("nothing that was written down is lost: with a program that answers, the "
                       "same command goes on"));
  }

  void require_whole(const ChildResult& result, size_t talks) const {
    if (result.end == ChildEnd::kTooLate) {
      refuse(tr("it took longer than {:g} s for {} conversations (--environment_timeout)",
                static_cast<double>(timeout_ms_) / 1000, talks));
    }
    if (result.end == ChildEnd::kTooMuch)
      refuse(tr("it printed more than {} bytes for {} conversations", result.output.size(), talks));
    if (WIFSIGNALED(result.status)) refuse(tr("ended by signal {}", WTERMSIG(result.status)));
    if (WEXITSTATUS(result.status) != 0) refuse(tr("exit code {}", WEXITSTATUS(result.status)));
  }

  std::vector<Reply> read(const std::vector<std::string>& lines,
                          std::span<const Talk> talks) const {
    if (lines.size() != talks.size())
      refuse(tr("it printed {} lines for {} conversations", lines.size(), talks.size()));
    std::vector<Reply> replies;
    for (size_t i = 0; i < lines.size(); ++i) {
      try {
        const Json json = parse_json(lines[i], "a line");
        replies.push_back(reply_from(json));
        const auto id = json.find("id");
        if (id != json.end() && *id != talks[i].id)
          throw DataError(tr("it is of {}, and {} was asked about", dump_text(*id), talks[i].id));
      } catch (const DataError& error) {
        constexpr size_t kShown = 80;
        refuse(tr("line {}: {} ({})", i + 1, error.what(), dump_text(lines[i].substr(0, kShown))));
      }
    }
    return replies;
  }

  std::vector<std::string> words_;
  std::string command_;
  int64_t timeout_ms_;
};

}  // namespace

std::unique_ptr<Environment> make_program_environment(const std::string& command,
                                                      int64_t timeout_ms) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw UsageError(tr("[environment] program: names no command"));
  return std::make_unique<ProgramEnvironment>(std::move(words), command, timeout_ms);
}

}  // namespace danlu::eval
