// `danlu chat` and `danlu infer` as scripts start them: at a terminal with their output in a pipe
// (`| tee`), with nobody there, and in several processes of which one answers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/free_port.h"
#include "cli/launch.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// All that comes until the other end is closed.
std::string all_of(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(fd);
  return text;
}

/// Descriptors that a program gets; the caller's others close when it begins.
struct Streams {
  int in, out, err;
};

pid_t started(const std::vector<std::string>& words, const Streams& streams) {
  std::vector<std::string> line = {danlu_path()};
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv("DANLU_LANG", "en", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::dup2(streams.in, STDIN_FILENO);
  ::dup2(streams.out, STDOUT_FILENO);
  ::dup2(streams.err, STDERR_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

int exit_code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// A terminal, and a pipe as `| tee` reads.
struct TerminalAndPipe {
  int master = -1, slave = -1, ends[2] = {-1, -1};
  TerminalAndPipe() {
    EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    for (const int fd : {master, slave}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  }
  /// The program has them.
  void leave() const {
    ::close(slave);
    ::close(ends[1]);
  }
};

/// `danlu WORDS… 2>FILE | tee`, where `typed` is typed at a terminal.
ProgramResult typed_at_a_terminal(const std::vector<std::string>& words, const std::string& typed,
                                  const std::string& error_file) {
  const TerminalAndPipe at;
  const int errors = ::open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t child = started(words, {at.slave, at.ends[1], errors});
  ::close(errors);
  at.leave();
  EXPECT_EQ(::write(at.master, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  ProgramResult result;
  result.out = all_of(at.ends[0]);
  result.exit_code = exit_code_of(child);
  ::close(at.master);
  result.err = content_of(error_file);
  return result;
}

class Terminal : public Launch {
 protected:
  std::string answer() const {
    const ProgramResult result = run_words({"infer", "--model", good("model"), "--prompt", "fox?",
                                            "--max_new_tokens", "4", "--template", "chatml"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::vector<std::string> asking(const std::string& command) const {
    return {command, "--model", good("model"), "--max_new_tokens", "4", "--template", "chatml"};
  }
};

TEST_F(Terminal, WhoTypesBeforeATeeSeesThePrompt) {
  for (const char* command : {"chat", "infer"}) {
    const ProgramResult result =
        typed_at_a_terminal(asking(command), "fox?\n/exit\n", (*this) / "errors");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(">>> "));
    EXPECT_THAT(result.err, HasSubstr("/help lists commands"));
    EXPECT_THAT(result.out, Not(HasSubstr(">>>"))) << "the pipe has the answers alone";
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  }
}

TEST_F(Terminal, TwoCheckpointsAnswerEachTurn) {
  ASSERT_EQ(run_words(training("run", {"--max_steps", "40", "--lr", "1e-2"})).exit_code, 0);
  const auto asked = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    ProgramSettings settings;
    settings.input = "fox?\nwhy?\n";
    settings.directory = (*this) / "";
    const ProgramResult result = run_danlu(words, settings);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string one = asked(asking("chat"), {});
  std::vector<std::string> trained = asking("chat");
  trained[2] = "run";
  const std::string other = asked(trained, {});
  ASSERT_NE(one, other);
  const std::string both = asked(asking("chat"), {"--compare", "run"});
  std::string first, second;
  bool is_second = false;
  std::istringstream lines(both);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("── ")) {
      is_second = line == "── run ──";
    } else {
      (is_second ? second : first) += line + "\n";
    }
  }
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, other);
  std::vector<std::string> missing = asking("chat");
  missing.insert(missing.end(), {"--compare", "no/such"});
  const ProgramResult refused = run_words(missing);
  EXPECT_EQ(refused.exit_code, 4) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("no/such"));
}

// A script's `| tee tune.log` is to have what a training says; the terminal has it through tee.
TEST_F(Terminal, ATeeGetsTheLinesOfATraining) {
  const TerminalAndPipe at;
  const pid_t child =
      started(training("run", {"--max_steps", "2"}), {STDIN_FILENO, at.ends[1], at.slave});
  at.leave();
  const std::string piped = all_of(at.ends[0]);
  EXPECT_EQ(exit_code_of(child), 0) << piped;
  for (const char* said : {"trainable params", "step 1/2", "finished 2 steps"})
    EXPECT_THAT(piped, HasSubstr(said));
  const std::string screen = all_of(at.master);
  EXPECT_THAT(screen, Not(HasSubstr("step 1/2"))) << "each line is seen once";
  EXPECT_THAT(screen, Not(HasSubstr("Train:"))) << "a bar would stand in the midst of lines";
}

TEST_F(Terminal, QuestionsThatArePipedAreDrawnAsTheTaskSays) {
  const auto asked = [&](const char* task, const char* seed) {
    ProgramSettings settings;
    settings.input = "fox?\n";
    settings.directory = (*this) / "";
    std::vector<std::string> words = asking("infer");
    words.insert(words.end(), {"--task", task, "--seed", seed, "--temperature", "2"});
    const ProgramResult result = run_danlu(words, settings);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(asked("greedy", "1"), asked("greedy", "2"));
  for (const char* task : {"do_sample", "chat"}) {
    EXPECT_NE(asked(task, "1"), asked("greedy", "1")) << task;
    EXPECT_NE(asked(task, "1"), asked(task, "2")) << task;
  }
}

// MindSpeed's generate scripts take base models.
TEST_F(Terminal, WithoutATemplateWhatIsPipedIsCompleted) {
  const std::vector<std::string> words = {"infer", "--model",          good("model"),
                                          "--raw", "--max_new_tokens", "4"};
  std::vector<std::string> single = words;
  single.insert(single.end(), {"--prompt", "the small house"});
  ProgramSettings settings;
  settings.input = "the small house\n";
  settings.directory = (*this) / "";
  const ProgramResult piped = run_danlu(words, settings);
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(piped.out, run_words(single).out);
}

// MindSpeed's generate scripts name no question.
TEST_F(Terminal, WhereNobodyAsksItSaysHow) {
  const ProgramResult result = run_words(asking("infer"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("nothing was asked"));
  EXPECT_THAT(result.err, HasSubstr("--prompt TEXT"));
}

TEST_F(Terminal, OfSeveralProcessesTheFirstAnswers) {
  std::vector<std::string> words = asking("infer");
  words.insert(words.end(), {"--prompt", "fox?"});
  const std::string alone = answer();
  const ProgramResult launched = launch(4, words);
  EXPECT_EQ(launched.exit_code, 0) << launched.err;
  EXPECT_EQ(launched.out, alone);
  EXPECT_THAT(launched.err, HasSubstr("one process reads the whole model and answers"));
  const std::string port = std::to_string(free_port().value());
  for (const char* rank : {"0", "1"}) {
    const ProgramResult result = run_words(words, {{"RANK", rank},
                                                   {"WORLD_SIZE", "2"},
                                                   {"LOCAL_RANK", rank},
                                                   {"LOCAL_WORLD_SIZE", "2"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", port}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, *rank == '0' ? alone : "");
    if (*rank == '1') {
      EXPECT_THAT(result.err, HasSubstr("rank 0 answers"));
    }
  }
}

TEST_F(Terminal, APortThatIsTakenIsSaidBeforeAnyRankBegins) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(fd, any, size), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, any, &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  std::vector<std::string> words = training("run", {"--max_steps", "1"});
  words.insert(words.begin(), {"launch", "--nproc_per_node", "2", "--master_port", port});
  const ProgramResult result = run_words(words);
  ::close(fd);
  expect_error(result, 7, {"port " + port + " of this machine is taken", "is free"});
  EXPECT_FALSE(std::filesystem::exists((*this) / "run"));
}

}  // namespace
}  // namespace danlu::test
