// `danlu tokenizer train`: a byte-level BPE tokenizer from text.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/progress.h"
#include "base/threads.h"
#include "cli/commands/commands.h"
#include "text/tokenizer/bpe_trainer.h"

namespace danlu::cli {
namespace {

using text::KnownPattern;

// A wording of our own for the ChatML layout: role, newline, content, each between the two markers.
constexpr const char* kChatmlTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";

KnownPattern pattern_of(const std::string& name) {
  if (name == "gpt2") return KnownPattern::kGpt2;
  if (name == "llama3") return KnownPattern::kLlama3;
  return KnownPattern::kQwen2;
}

/// Texts are counted in chunks of about a megabyte, cut where that changes no piece: the counts are
/// those of whole texts, whatever the number of threads.
text::PieceCounts count_files(const std::vector<std::string>& paths, KnownPattern pattern) {
  constexpr size_t kChunk = 1 << 20;
  std::vector<MappedFile> files;
  std::vector<std::string_view> chunks;
  uint64_t total = 0;
  for (const std::string& path : paths) {
    files.emplace_back(path);
    std::string_view rest = files.back().text();
    total += rest.size();
    while (!rest.empty()) {
      size_t size = rest.size() > kChunk ? text::safe_cut(rest.substr(0, kChunk), pattern) : 0;
      if (size == 0) size = rest.size() > kChunk ? 0 : rest.size();
      for (size_t wider = kChunk * 2; size == 0; wider *= 2) {
        size = wider < rest.size() ? text::safe_cut(rest.substr(0, wider), pattern) : rest.size();
      }
      chunks.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
  }
  if (total == 0) throw DataError(tr("the input holds no text"));
  warn_of_many_threads();
  ProgressBar progress("counting", total, "B");
  text::PieceCounts all;
  std::mutex mutex;
  uint64_t done = 0;
  parallel_for(chunks.size(), default_thread_count(), [&](size_t i) {
    text::PieceCounts counts;
    text::count_pieces(chunks[i], pattern, counts);
    const std::lock_guard lock(mutex);
    for (auto& [piece, count] : counts) all[piece] += count;
    done += chunks[i].size();
    progress.update(done);
  });
  progress.finish();
  return all;
}

std::vector<std::string> special_tokens(const Options& options, bool chatml) {
  std::vector<std::string> tokens = options.get_list("special_tokens");
  const auto add = [&](const std::string& token) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  if (chatml) {
    add("<|im_start|>");
    add("<|im_end|>");
  }
  return tokens;
}

Json tokenizer_config(const std::vector<std::string>& specials, size_t first_id, bool chatml,
                      int64_t max_length) {
  Json decoder = Json::object();
  for (size_t i = 0; i < specials.size(); ++i) {
    decoder[std::to_string(first_id + i)] = {{"content", specials[i]}, {"lstrip", false},
                                             {"normalized", false},    {"rstrip", false},
                                             {"single_word", false},   {"special", true}};
  }
  const Json first = specials.empty() ? Json() : Json(specials.front());
  Json config = {{"add_bos_token", false},
                 {"add_prefix_space", false},
                 {"added_tokens_decoder", decoder},
                 {"additional_special_tokens", specials},
                 {"bos_token", nullptr},
                 {"clean_up_tokenization_spaces", false},
                 {"eos_token", chatml ? Json("<|im_end|>") : first},
                 {"errors", "replace"},
                 {"model_max_length", max_length},
                 {"pad_token", first},
                 {"split_special_tokens", false},
                 {"tokenizer_class", "Qwen2Tokenizer"},
                 {"unk_token", nullptr}};
  if (chatml) config["chat_template"] = kChatmlTemplate;
  return config;
}

void require_free_directory(const fs::path& directory, bool overwrite) {
  const fs::path file = directory / kTokenizerFile;
  if (!overwrite && fs::exists(file)) throw_taken(file);
}

}  // namespace

OptionTable tokenizer_options() {
  const std::string data = "Data", vocabulary = "Vocabulary", output = "Output";
  return OptionTable(
      "tokenizer", "make a byte-level BPE tokenizer from text",
      "danlu tokenizer train --input FILE... --vocab_size N --output DIR [flags]",
      {
          {.name = "input",
           .type = OptionType::kList,
           .help = "text files, UTF-8",
           .aliases = {"i"},
           .group = data,
           .required = true},
          {.name = "vocab_size",
           .type = OptionType::kInt,
           .help = "tokens in all, special ones included (at least 256 + those)",
           .range = NumberRange().up_to(1 << 24),
           .group = vocabulary,
           .required = true},
          {.name = "min_frequency",
           .type = OptionType::kInt,
           .default_text = "2",
           .help = "pairs seen less often are not merged",
           .range = at_least(1),
           .group = vocabulary},
          {.name = "special_tokens",
           .type = OptionType::kList,
           .default_text = "<|endoftext|>",
           .help = "the first is padding, and ends texts unless there is a chat template",
           .group = vocabulary},
          {.name = "pre_tokenizer",
           .default_text = "qwen2",
           .help = "whose rule cuts text into words",
           .choices = {"qwen2", "llama3", "gpt2"},
           .group = vocabulary},
          {.name = "chat_template",
           .default_text = "none",
           .help = "chatml adds <|im_start|>, <|im_end|> and a template that uses them",
           .choices = {"none", "chatml"},
           .group = output},
          {.name = "model_max_length",
           .type = OptionType::kInt,
           .default_text = "32768",
           .help = "longest text in tokens, noted in tokenizer_config.json",
           .range = at_least(1),
           .group = output},
          {.name = "output",
           .help = "directory for tokenizer.json and tokenizer_config.json",
           .aliases = {"output_dir", "o"},
           .group = output,
           .required = true},
          {.name = "overwrite",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "replace a tokenizer that is there already",
           .group = output},
      });
}

int run_tokenizer(const Options& options) {
  if (options.positional() != std::vector<std::string>{"train"}) {
    throw UsageError(tr("[tokenizer] the one thing to do is 'train'"),
                     "danlu tokenizer train --input FILE --vocab_size N --output DIR");
  }
  const fs::path output = options.get_string("output");
  const MadeDirectory made(output);
  const bool overwrite = options.get_bool("overwrite");
  const std::vector<std::string> texts = options.get_list("input");
  for (const char* file : {kTokenizerFile, kConfigFile})
    refuse_to_replace_inputs(output / file, {texts.begin(), texts.end()});
  // In the directory, which may be there already and hold other things.
  const FileLock lock = lock_output(output / kTokenizerFile);
  require_free_directory(output, overwrite);
  const bool chatml = options.get_string("chat_template") == "chatml";
  const std::vector<std::string> specials = special_tokens(options, chatml);
  const int64_t vocab_size = options.get_int("vocab_size");
  const auto num_specials = static_cast<int64_t>(specials.size());
  if (vocab_size < 256 + num_specials) {
    throw UsageError(
        tr("[vocab_size] must be at least {} (256 bytes and {} special tokens), "
           "got {}",
           256 + num_specials, num_specials, vocab_size));
  }
  const KnownPattern pattern = pattern_of(options.get_string("pre_tokenizer"));
  const text::PieceCounts counts = count_files(texts, pattern);

  text::BpeTrainerOptions training;
  training.num_tokens = static_cast<size_t>(vocab_size - num_specials);
  training.min_frequency = static_cast<uint64_t>(options.get_int("min_frequency"));
  ProgressBar progress("merging", training.num_tokens, "tokens");
  training.on_progress = [&](size_t done) { progress.update(done); };
  const text::TrainedBpe trained = text::train_bpe(counts, training);
  progress.update(trained.tokens.size());
  progress.finish();
  if (trained.tokens.size() < training.num_tokens) {
    log::warning("the text gives only {} tokens: no pair is left that occurs {} times",
                 trained.tokens.size() + specials.size(), training.min_frequency);
  }
  require_free_directory(output, overwrite);
  // The tokenizer last: where it is, both are.
  write_json_file(output / kConfigFile, tokenizer_config(specials, trained.tokens.size(), chatml,
                                                         options.get_int("model_max_length")));
  write_json_file(output / kTokenizerFile, text::tokenizer_json_of(trained, pattern, specials));
  log::info("{} tokens ({} merges, {} special) from {} distinct words: {}",
            trained.tokens.size() + specials.size(), trained.merges.size(), specials.size(),
            format_count(counts.size()), output.string());
  return 0;
}

}  // namespace danlu::cli
