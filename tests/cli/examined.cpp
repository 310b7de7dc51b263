#include "cli/examined.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTimeForm = "YYYY-mm-ddTHH-MM-SS.uuuuuu";

json config_of_window(int64_t max_positions, const std::string& model_type) {
  return {{"model_type", model_type},
          {"architectures", {model_type == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
          {"vocab_size", 320},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", max_positions},
          {"rms_norm_eps", 1e-6},
          {"initializer_range", 0.5},
          {"tie_word_embeddings", false},
          {"hidden_act", "silu"},
          {"torch_dtype", "float32"}};
}

std::string fox_row(int i) {
  std::string text = "fox " + std::to_string(i) + " jumps";
  for (int word = 0; word < i % 9; ++word) text += " over the dog";
  return json{{"q", text + "?"},
              {"choices", {"dog", "the lazy dog", "brown " + std::to_string(i)}},
              {"gold", (i * 5 + 1) % 3},
              {"a", std::to_string(i % 4)},
              {"text", text + "."}}
             .dump() +
         "\n";
}

constexpr const char* kFoxesTask = R"(task: foxes
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]
)";
constexpr const char* kTalkTask = R"task(task: talk
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: a
generation_kwargs: {until: ["zq"], max_gen_toks: 24}
filter_list:
  - name: digits
    filter: [{function: regex, regex_pattern: "([0-9])", group_select: -1}, {function: take_first}]
metric_list: [{metric: exact_match}]
)task";
constexpr const char* kTaleTask = R"(task: tale
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}]
)";

}  // namespace

void Examined::SetUp() {
  BadInput::SetUp();
  write("tasks/foxes.yaml", kFoxesTask);
  write("tasks/talk.yaml", kTalkTask);
  write("tasks/tale.yaml", kTaleTask);
  write_rows("rows", 8);
}

fs::path Examined::make_model(const std::string& name, int64_t max_positions,
                              const std::string& model_type) const {
  const fs::path config = write(name + ".json", config_of_window(max_positions, model_type).dump());
  const ProgramResult made = run({"init", "--config", config.string(), "--tokenizer",
                                  good("tokenizer").string(), "--output", name});
  if (made.exit_code != 0) throw std::runtime_error(made.err);
  return (*this) / name;
}

fs::path Examined::wide_model() {
  static const TemporaryDirectory kept;
  const fs::path model = kept / "wide";
  if (fs::exists(model)) return model;
  write_content(kept / "config.json", config_of_window(512, "qwen2").dump());
  const ProgramResult made =
      run_danlu({"init", "--config", (kept / "config.json").string(), "--tokenizer",
                 good("tokenizer").string(), "--output", model.string()});
  if (made.exit_code != 0) throw std::runtime_error(made.err);
  return model;
}

fs::path Examined::write_mmlu(const std::vector<std::string>& subjects) const {
  for (const std::string& subject : subjects) {
    for (const auto& [split, count] : {std::pair{"dev", 5}, {"test", 8}}) {
      std::string rows;
      for (int i = 0; i < count; ++i) {
        const std::string n = std::to_string(i);
        rows += "what does fox " + n + " of " + subject + " jump over,dog " + n + ",the fox," + n +
                " dogs,nothing," + "ABCD"[(i * 3 + 1) % 4] + "\n";
      }
      write(std::string("mmlu/") + split + "/" + subject + "_" + split + ".csv", rows);
    }
  }
  return (*this) / "mmlu";
}

fs::path Examined::write_rows(const std::string& directory, int count) const {
  std::string rows;
  for (int i = 0; i < count; ++i) rows += fox_row(i);
  write(directory + "/test.jsonl", rows);
  return (*this) / directory;
}

std::vector<std::string> Examined::words_of(const Flags& flags) const {
  Flags all = {{"model", wide_model()},
               {"tasks", "foxes"},
               {"include_path", "tasks"},
               {"data_dir", "rows"},
               {"output_path", "out"}};
  for (const auto& [name, text] : flags) all[name] = text;
  std::vector<std::string> words = {"eval"};
  for (const auto& [name, text] : all) {
    if (text != "-") words.insert(words.end(), {"--" + name, text});
  }
  return words;
}

ProgramResult Examined::examine(const Flags& flags, ProgramSettings settings) const {
  settings.environment.try_emplace("OMP_NUM_THREADS", "1");
  settings.environment["XDG_CACHE_HOME"] = ((*this) / "cache").string();
  settings.directory = ((*this) / "").string();
  return run_danlu(words_of(flags), settings);
}

std::vector<json> Examined::samples_of(const std::string& task, Flags flags) const {
  static int number = 0;
  const std::string directory = "out-" + std::to_string(++number);
  flags["output_path"] = directory;
  flags.try_emplace("tasks", task);
  const ProgramResult result = examine(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return samples_in(directory, task);
}

json Examined::results_in(const std::string& directory) const {
  json found;
  for (const std::string& name : names_in(directory)) {
    if (!name.starts_with("results_")) continue;
    EXPECT_TRUE(found.is_null()) << "more than one results file in " << directory;
    found = json::parse(content_of((*this) / directory / name));
  }
  EXPECT_FALSE(found.is_null()) << "no results in " << directory;
  return found;
}

std::vector<json> Examined::samples_in(const std::string& directory,
                                       const std::string& task) const {
  std::vector<json> samples;
  for (const std::string& name : names_in(directory)) {
    if (!name.starts_with("samples_" + task + "_")) continue;
    std::istringstream lines(content_of((*this) / directory / name));
    for (std::string line; std::getline(lines, line);) samples.push_back(json::parse(line));
  }
  return samples;
}

std::map<std::string, std::string> Examined::timeless(const std::string& directory) const {
  std::map<std::string, std::string> contents;
  for (std::string name : names_in(directory)) {
    const fs::path file = (*this) / directory / name;
    const size_t end = name.rfind('.'), length = std::string(kTimeForm).size();
    if (end != name.npos && end > length) name = name.substr(0, end - length) + name.substr(end);
    std::string& content = contents[name];
    EXPECT_TRUE(content.empty()) << "two of " << name << " in " << directory;
    content = fs::is_directory(file) ? "directory" : content_of(file);
    if (!name.starts_with("results_")) continue;
    json results = json::parse(content);
    for (const char* key : {"date", "start_time", "end_time", "total_evaluation_time_seconds"})
      results.erase(key);
    content = results.dump(1);
  }
  return contents;
}

std::vector<std::string> Examined::names_in(const std::string& directory) const {
  std::vector<std::string> names;
  if (!fs::exists((*this) / directory)) return names;
  for (const auto& entry : fs::directory_iterator((*this) / directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<double> likelihoods(const json& sample) {
  std::vector<double> numbers;
  for (const json& choice : sample.at("resps"))
    numbers.push_back(std::stod(choice.at(0).at(0).get<std::string>()));
  return numbers;
}

void expect_near_samples(const std::vector<json>& a, const std::vector<json>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].at("doc_hash"), b[i].at("doc_hash"));
    const auto of_a = likelihoods(a[i]), of_b = likelihoods(b[i]);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t j = 0; j < of_a.size(); ++j)
      EXPECT_NEAR(of_b[j], of_a[j], relative * std::abs(of_a[j])) << i << ", " << j;
  }
}

}  // namespace danlu::test
