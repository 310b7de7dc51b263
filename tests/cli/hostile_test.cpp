// Inputs and surroundings made to break the program: it ends at once, with an error that says what.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

using Words = std::vector<std::string>;

class Hostile : public BadInput {
 protected:
  /// By way of bash: `before` (limits, variables) is run first, `after` holds redirections. It is
  /// ended, with exit code 137, when it hangs.
  ProgramResult run_in_shell(const std::string& before, const Words& words,
                             const std::string& after = "",
                             const std::string& wrapper = "exec timeout -s KILL 900") const {
    std::string script = "cd '" + ((*this) / "").string() +
                         "'; export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$PWD/cache DANLU_LANG=en; "
                         "unset LOG_LEVEL; exec >shell.out 2>shell.err </dev/null; " +
                         before + "; " + wrapper + " " + danlu_path();
    for (const std::string& word : words) script += " '" + word + "'";
    write("shell.sh", script + " " + after + "\n");
    const int status = std::system(("bash '" + ((*this) / "shell.sh").string() + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            content_of((*this) / "shell.out"), content_of((*this) / "shell.err")};
  }
  Words preprocess(const std::string& prefix = "out") const {
    return {"preprocess",
            "--input",
            good("good.jsonl"),
            "--tokenizer-name-or-path",
            good("tokenizer"),
            "--output-prefix",
            prefix};
  }
  Words answer() const {
    return {"infer", "--model", good("model"), "--prompt", "hi", "--max_new_tokens", "1"};
  }
  Words sft() const {
    return {"sft",          "--model", good("model"), "--dataset", good("good.jsonl"),
            "--output_dir", "run"};
  }
  Words launched() const {
    Words words = sft();
    words.insert(words.end(), {"--nproc_per_node", "2"});
    return words;
  }
};

TEST_F(Hostile, DeeplyNestedJsonIsAnErrorEverywhere) {
  const std::string deep = "{\"a\": " + nested(100'000) + "}";
  for (const char* file : {"config.json", "generation_config.json", "tokenizer_config.json",
                           "tokenizer.json", "model.safetensors.index.json"}) {
    SCOPED_TRACE(file);
    const fs::path model = copy_model(std::string("with-") + file);
    if (std::string(file).starts_with("model.")) fs::remove(model / "model.safetensors");
    write_content(model / file, deep);
    expect_error(ask(model), 4, {file, "nested more than 512 deep"});
  }
  write_content((*this) / "adapter/adapter_config.json", deep);
  expect_error(run({"inspect", "adapter"}), 4,
               {"adapter_config.json", "nested more than 512 deep"});
  write("messages.json", R"([{"role": "user", "content": "hi", "x": )" + nested(100'000) + "}]");
  expect_error(run({"render", "--model", good("tokenizer"), "--input", "messages.json"}), 3,
               {"messages.json:1:", "nested more than 512 deep"});
  expect_error(run({"render", "--model", good("tokenizer"), "--input", "messages.json",
                    "--chat_template_kwargs", nested(50'000)}),  // an argument ends at 128 KiB
               2, {"chat_template_kwargs", "nested more than 512 deep"});
  write("rows.jsonl", "{\"instruction\": \"a\", \"output\": " + nested(100'000) + "}\n");
  expect_error(train("rows.jsonl"), 3, {"rows.jsonl:1", "nested deeper than 512 levels"});
}

TEST_F(Hostile, MoreThreadsThanTheMachineCouldUseAreRefused) {
  for (const Words& words : {answer(), preprocess(), sft(), launched()}) {
    expect_error(run_in_shell("export OMP_NUM_THREADS=100000", words), 2,
                 {"[OMP_NUM_THREADS] must be at most ", "got 100000\n"});
  }
}

TEST_F(Hostile, WhatIsNoNumberOfThreadsIsRefusedBeforeALibraryReadsIt) {
  for (const Words& words : {answer(), preprocess(), sft(), launched()}) {
    for (const std::string wrong : {"abc", "0", "-3", "2,x"}) {
      const ProgramResult result = run_in_shell("export OMP_NUM_THREADS=" + wrong, words);
      expect_error(result, 2,
                   {"[OMP_NUM_THREADS] must be a number of threads", "got '" + wrong + "'"});
      EXPECT_THAT(result.err, StartsWith("error: ")) << words[0];
    }
  }
}

TEST_F(Hostile, FarMoreThreadsThanProcessorsAreSaidOnce) {
  const std::string one =
      "export OMP_NUM_THREADS=8; exec taskset -c $(taskset -cp $$ | "
      "grep -o '[0-9]*$')";
  for (const Words& words : {answer(), preprocess()}) {
    const ProgramResult result = run_in_shell("true", words, "", one);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string said = "warning: OMP_NUM_THREADS=8 threads on 1 processors";
    const size_t at = result.err.find(said);
    EXPECT_NE(at, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(said, at + 1), std::string::npos) << result.err;
  }
  // A list is of nested levels.
  const ProgramResult nested = run_in_shell("export OMP_NUM_THREADS=2,1", answer());
  EXPECT_EQ(nested.exit_code, 0);
  EXPECT_THAT(nested.err, Not(HasSubstr("OMP_NUM_THREADS")));
}

/// Root is bound by no number of processes and no permission; a user that nothing else runs as may
/// be had here.
std::string other_user() {
  return ::geteuid() == 0
             ? "exec setpriv --clear-groups --reuid=" + std::to_string(100'000 + ::getpid())
             : "exec";
}

TEST_F(Hostile, AWritableDirectoryInOneThatIsNotSaysWhereTheResultCanBe) {
  fs::create_directories((*this) / "parent/mine");
  fs::copy(good("model"), (*this) / "model", fs::copy_options::recursive);
  fs::permissions((*this) / "", fs::perms::all);
  fs::permissions((*this) / "parent/mine", fs::perms::all);
  fs::permissions((*this) / "parent", fs::perms::all);
  constexpr auto kWrite = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  fs::permissions((*this) / "parent", kWrite, fs::perm_options::remove);
  const auto as_other = [&](const Words& words) {
    return run_in_shell("umask 0", words, "", other_user());
  };
  for (const Words& words :
       std::vector<Words>{{"convert", "model", "parent/mine", "--to", "mcore"},
                          {"init", "--config", "model/config.json", "--output", "parent/mine"}}) {
    const ProgramResult refused = as_other(words);
    if (refused.exit_code == 126) GTEST_SKIP() << "no other user may run the program here";
    expect_error(
        refused, 8,
        {"parent: cannot write into: ", "name a new directory inside, ", "/parent/mine/model\n"});
  }
  EXPECT_EQ(as_other({"convert", "model", "parent/mine/model", "--to", "mcore"}).exit_code, 0);
  fs::permissions((*this) / "parent", fs::perms::all);
}

TEST_F(Hostile, ThreadsThatTheSystemRefuses) {
  const std::string limited = "ulimit -u 1; " + other_user();
  if (std::system(("bash -c \"" + limited + " test -x '" + danlu_path() + "'\"").c_str()) != 0)
    GTEST_SKIP() << "no other user may run the program here";
  fs::permissions((*this) / "", fs::perms::all);
  fs::copy(good("model"), (*this) / "model", fs::copy_options::recursive);
  fs::copy(good("good.jsonl"), (*this) / "good.jsonl");
  const Words asks = {"infer", "--model", "model", "--prompt", "hi"};
  const ProgramResult answer = run_in_shell("umask 0; ulimit -u 1", asks, "", other_user());
  if (answer.exit_code == 0) GTEST_SKIP() << "no limit of processes takes hold here";
  expect_error(answer, 6,
               {"[engine] 5 threads are needed (OMP_NUM_THREADS=1)", "makes only 0",
                "ulimit -u allows this user 1"});
  const Words encodes = {"preprocess", "--input",         "good.jsonl", "--tokenizer-name-or-path",
                         "model",      "--output-prefix", "out",        "--workers",
                         "4"};
  expect_error(run_in_shell("umask 0; ulimit -u 1", encodes, "", other_user()), 6,
               {"the system does not allow another thread", "hint: lower OMP_NUM_THREADS"});
}

TEST_F(Hostile, MemoryThatCannotBeHadIsAnErrorAndNoHang) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory does not fit the limits";
#endif
  expect_error(run_in_shell("ulimit -v 600000; export OMP_NUM_THREADS=2", answer()), 6,
               {"[engine] danlu infer with 2 threads needs at least ", "ulimit -v allows 614.4 MB",
                "hint: raise the limit"});
  expect_error(run_in_shell("ulimit -v 1000000; export OMP_NUM_THREADS=2",
                            {"sft", "--model", good("model"), "--dataset", good("good.jsonl")}),
               6, {"danlu sft with 2 threads needs at least 1.", "ulimit -v allows 1.0 GB"});
  expect_error(run_in_shell("ulimit -v 1000000; export OMP_NUM_THREADS=64", answer()), 6,
               {"danlu infer with 64 threads needs at least ", "ulimit -v allows 1.0 GB",
                "set OMP_NUM_THREADS to fewer"});
  // What is named is more than what there was, and threads are not blamed for it.
  const ProgramResult close = run_in_shell("ulimit -v 920000; export OMP_NUM_THREADS=2", answer());
  expect_error(close, 6, {"needs at least 9", " MB of address space; ulimit -v allows 942.1 MB"});
  EXPECT_THAT(close.err, Not(HasSubstr("threads are needed")));
  // Whatever the limit is, the program ends.
  for (const char* threads : {"2", "8"}) {
    for (const char* kilobytes : {"930000", "960000", "1100000", "1300000"}) {
      const std::string limits =
          std::string("ulimit -v ") + kilobytes + "; export OMP_NUM_THREADS=" + threads;
      const int code = run_in_shell(limits, answer()).exit_code;
      EXPECT_TRUE(code == 0 || code == 6) << limits << ": " << code;
    }
  }
  write("large.txt", std::string(40'000'000, 'x'));
  const ProgramResult tokenized = run_in_shell(
      "ulimit -v 160000", {"tokenize", "--model", good("tokenizer"), "--input", "large.txt"});
  expect_error(tokenized, 6, {"out of memory", "hint: give it less at a time"});
  EXPECT_THAT(tokenized.err, Not(HasSubstr("batch size")));
}

TEST_F(Hostile, ClosedStandardDescriptorsAreNoFiles) {
  ASSERT_EQ(run(preprocess()).exit_code, 0);
  EXPECT_EQ(run_in_shell("true", preprocess("closed"), "<&- >&- 2>&-").exit_code, 0);
  int compared = 0;
  for (const auto& entry : fs::directory_iterator((*this) / "")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("out") || entry.path().extension() == ".json") continue;
    EXPECT_EQ(content_of(entry.path()), content_of((*this) / ("closed" + name.substr(3)))) << name;
    ++compared;
  }
  EXPECT_GE(compared, 2);
  // What was made is complete, though nothing could be said about it; what prints has failed.
  const ProgramResult converted =
      run_in_shell("true", {"convert", good("model"), "converted", "--to", "native"}, ">&-");
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_TRUE(fs::exists((*this) / "converted/danlu_checkpoint.json"));
  EXPECT_THAT(converted.err, HasSubstr("warning: standard output cannot be written"));
  for (const Words& prints : {Words{"tokenize", "--model", good("tokenizer"), "fox"},
                              {"inspect", good("model")},
                              {"convert", "--help"},
                              {"diff", good("model"), good("model")}}) {
    expect_error(run_in_shell("true", prints, ">&-"), 8, {"standard output cannot be written"});
  }
}

TEST_F(Hostile, NamedPipesAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(((*this) / "pipe.jsonl").c_str(), 0600), 0);
  const std::string pipe = "pipe.jsonl", tokenizer = good("tokenizer");
  for (const Words& words :
       {Words{"diff", pipe, good("model")},
        {"convert", pipe, "converted", "--to", "native"},
        {"inspect", pipe},
        {"tokenize", "--model", tokenizer, "--input", pipe},
        {"tokenizer", "train", "--input", pipe, "--vocab_size", "280", "--output", "t"},
        {"render", "--model", tokenizer, "--input", pipe},
        {"preprocess", "--input", pipe, "--tokenizer-name-or-path", tokenizer, "--output-prefix",
         "p"}}) {
    const ProgramResult result = run_in_shell("true", words);
    EXPECT_THAT(result.exit_code, testing::AllOf(testing::Ge(2), testing::Le(8)))
        << words[0] << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("pipe.jsonl")) << words[0];
  }
  // A pipe that somebody holds open is not one of them.
  for (const char* input : {"<(echo fox)", "/dev/stdin < <(echo fox)", "/dev/stdin <shell.sh"}) {
    const ProgramResult result =
        run_in_shell("true", {"tokenize", "--model", tokenizer, "--input"}, input);
    EXPECT_EQ(result.exit_code, 0) << input << ": " << result.err;
    EXPECT_THAT(result.out, Not(testing::IsEmpty()));
  }
}

TEST_F(Hostile, LinksThatGoRoundAreNamed) {
  fs::create_symlink("loop", (*this) / "loop");
  for (const Words& arguments : {Words{"inspect", "loop"},
                                 {"convert", "loop", "converted", "--to", "native"},
                                 {"tokenize", "--model", "loop", "fox"},
                                 {"infer", "--model", "loop", "--prompt", "hi"},
                                 {"preprocess", "--input", "loop", "--tokenizer-name-or-path",
                                  good("tokenizer"), "--output-prefix", "p"},
                                 {"render", "--model", good("tokenizer"), "--input", "loop"}}) {
    const ProgramResult result = run(arguments);
    EXPECT_THAT(result.exit_code, testing::AllOf(testing::Ge(2), testing::Le(8)))
        << arguments[0] << ": " << result.err;
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr("error: "), HasSubstr("loop"),
                                           Not(HasSubstr("filesystem error"))))
        << arguments[0];
  }
}

TEST_F(Hostile, FileNamesAreBytes) {
  const std::string name = "caf\xe9";
  fs::copy(good("model"), (*this) / (name + "-model"), fs::copy_options::recursive);
  write(name + ".jsonl", content_of(good("good.jsonl")));
  write(name + ".txt", content_of(good("text.txt")));
  const std::string model = name + "-model", rows = name + ".jsonl";
  for (const Words& words :
       {Words{"inspect", rows},
        {"inspect", model},
        {"tokenize", "--model", model, "--input", name + ".txt"},
        {"tokenizer", "train", "--input", name + ".txt", "--vocab_size", "280", "--output",
         name + "-tokenizer"},
        {"preprocess", "--input", rows, "--tokenizer-name-or-path", model, "--output-prefix", name},
        {"convert", model, name + "-converted", "--to", "native"}}) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << words[0] << ": " << result.err;
  }
}

TEST_F(Hostile, ATemplateAtItsLimitStopsAtTheFirstRow) {
  write("costly.jinja", "{% set s = 'x' * 100000000 %}{{ s.replace('x', s) }}");
  Words words = preprocess();
  words.insert(words.end(), {"--prompt-type", "costly.jinja"});
  expect_error(run(words), 4,
               {"costly.jinja:1", "its limit is reached", "hint: a chat template this costly"});
}

TEST_F(Hostile, ATokenizerWhoseNormalizerBlowsTextsUp) {
  const fs::path model = copy_model();
  const std::string doubled = R"({"type": "Replace", "pattern": {"String": "o"}, "content": "oo"})";
  std::string steps = doubled;
  for (int i = 0; i < 28; ++i) steps += ", " + doubled;
  replace_in_file(
      model / "tokenizer.json", "\"normalizer\": {",
      R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + R"(]}, "before": {)");
  expect_error(run({"tokenize", "--model", model, "fox"}), 4,
               {"[tokenizer.json] the normalizer makes more than 1.0 MB of a text of 3 B"});
}

}  // namespace
}  // namespace danlu::test
