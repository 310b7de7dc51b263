#include "settings/options/mm_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::settings {
namespace {

/// What becomes of a key that is not null.
enum class Fate {
  kOption,   ///< given to the option
  kNothing,  ///< needs nothing done: another loader's business
  kColumn,   ///< a column or tag under attr
  kOnly,     ///< must have the value that is here anyway
  kRefused,
};

struct KeyRule {
  const char* key;
  Fate fate = Fate::kOption;
  /// kOption: its name. kOnly: the JSON of the only value. kRefused: why.
  const char* what = "";
};

using KeyRules = std::vector<KeyRule>;

const KeyRules& top_rules() {
  static const KeyRules kRules{{"dataset_param", Fate::kNothing},
                               {"dataloader_param", Fate::kNothing}};
  return kRules;
}

const KeyRules& dataset_rules() {
  static const KeyRules kRules{{"dataset_type", Fate::kOnly, "\"huggingface\""},
                               {"preprocess_parameters", Fate::kNothing},
                               {"basic_parameters", Fate::kNothing},
                               {"attr", Fate::kNothing}};
  return kRules;
}

const KeyRules& preprocess_rules() {
  static const KeyRules kRules{{"model_name_or_path", Fate::kOption, "tokenizer"},
                               {"use_fast_tokenizer", Fate::kNothing},
                               {"split_special_tokens", Fate::kOnly, "false"},
                               {"image_resolution", Fate::kOption, "image_resolution"},
                               {"video_resolution", Fate::kOption, "video_resolution"},
                               {"image_max_pixels", Fate::kOption, "image_max_pixels"},
                               {"image_min_pixels", Fate::kOption, "image_min_pixels"},
                               {"video_max_pixels", Fate::kOption, "video_max_pixels"},
                               {"video_min_pixels", Fate::kOption, "video_min_pixels"},
                               {"video_fps", Fate::kOption, "video_fps"},
                               {"video_maxlen", Fate::kOption, "video_maxlen"}};
  return kRules;
}

const KeyRules& basic_rules() {
  static const KeyRules kRules{
      {"template", Fate::kOption, "template"},
      {"dataset_dir", Fate::kOption, "media_dir"},
      {"dataset", Fate::kOption, "dataset"},
      {"cache_dir", Fate::kOption, "cache_dir"},
      {"train_on_prompt", Fate::kOption, "loss_scale=all"},
      {"mask_history", Fate::kOption, "loss_scale=last_answer"},
      {"preprocessing_batch_size", Fate::kNothing},
      {"preprocessing_num_workers", Fate::kOption, "workers"},
      {"max_samples", Fate::kOption, "max_total_samples"},
      {"tool_format", Fate::kRefused, "tools are written as the template says"},
      {"streaming", Fate::kNothing},
      {"overwrite_cache", Fate::kOption, "overwrite_cache"},
      {"val_dataset", Fate::kOption, "val_dataset"},
      {"val_rate", Fate::kOption, "val_ratio"},
      {"val_max_samples", Fate::kRefused, "write it behind the data set's path: val.json#100"},
      {"packing", Fate::kOption, "packing"},
      {"neat_packing", Fate::kOption, "packing"},
      {"cutoff_len", Fate::kRefused, "the longest sample is --seq-length"}};
  return kRules;
}

const KeyRules& attr_rules() {
  static const KeyRules kRules{{"formatting", Fate::kNothing},
                               {"system", Fate::kColumn},
                               {"images", Fate::kColumn},
                               {"videos", Fate::kColumn},
                               {"messages", Fate::kColumn},
                               {"tools", Fate::kColumn},
                               {"prompt", Fate::kColumn},
                               {"query", Fate::kColumn},
                               {"response", Fate::kColumn},
                               {"history", Fate::kColumn},
                               {"role_tag", Fate::kColumn},
                               {"content_tag", Fate::kColumn},
                               {"user_tag", Fate::kColumn},
                               {"assistant_tag", Fate::kColumn},
                               {"observation_tag", Fate::kColumn},
                               {"function_tag", Fate::kColumn},
                               {"system_tag", Fate::kColumn},
                               {"ranking", Fate::kOnly, "false"},
                               {"chosen", Fate::kRefused, "preference pairs are not available"},
                               {"rejected", Fate::kRefused, "preference pairs are not available"}};
  return kRules;
}

const KeyRules& loader_rules() {
  static const KeyRules kRules{{"dataloader_mode", Fate::kOnly, "\"sampler\""},
                               // Every row of an epoch is used once; the last step may be smaller.
                               {"drop_last", Fate::kNothing},
                               {"sampler_type", Fate::kNothing},
                               {"collate_param", Fate::kNothing},
                               {"pin_memory", Fate::kNothing},
                               {"num_workers", Fate::kNothing},
                               {"shuffle", Fate::kOption, "shuffle"},
                               {"batch_size", Fate::kRefused, "it is --micro-batch-size"}};
  return kRules;
}

const KeyRules& collate_rules() {
  static const KeyRules kRules{{"model_name", Fate::kOnly, "\"qwen2vl\""},
                               {"ignore_pad_token_for_loss", Fate::kOnly, "true"}};
  return kRules;
}

class MmDataReader {
 public:
  explicit MmDataReader(const std::filesystem::path& path)
      : name_(path.string()), json_(read_json_file(path)) {}

  std::vector<MmDataOption> read() {
    read_section(json_, "", top_rules());
    const Json dataset = section(json_, "dataset_param");
    read_section(dataset, "dataset_param", dataset_rules());
    read_section(section(dataset, "preprocess_parameters"), "preprocess_parameters",
                 preprocess_rules());
    read_section(section(dataset, "basic_parameters"), "basic_parameters", basic_rules());
    const Json attr = section(dataset, "attr");
    read_section(attr, "attr", attr_rules());
    read_columns(attr);
    const Json loader = section(json_, "dataloader_param");
    read_section(loader, "dataloader_param", loader_rules());
    read_section(section(loader, "collate_param"), "collate_param", collate_rules());
    choose_rule();
    return std::move(options_);
  }

 private:
  std::string where(const std::string& in, const std::string& key) const {
    return fmt::format("{}: {}{}{}", name_, in, in.empty() ? "" : ".", key);
  }

  Json section(const Json& outer, const char* key) const {
    Json inner = outer.is_object() && outer.contains(key) ? outer[key] : Json::object();
    if (inner.is_null()) inner = Json::object();
    if (!inner.is_object())
      throw DataError(tr("{}: must be an object, got {}", where("", key), inner.type_name()));
    return inner;
  }

  void read_section(const Json& object, const std::string& in, const KeyRules& rules) {
    if (!object.is_object())
      throw DataError(tr("{}: must be an object, got {}", name_, object.type_name()));
    for (const auto& [key, value] : object.items()) {
      const auto same = [&](const KeyRule& rule) { return rule.key == key; };
      const auto rule = std::find_if(rules.begin(), rules.end(), same);
      if (rule == rules.end()) refuse_unknown(in, key, rules);
      if (!value.is_null()) follow(*rule, where(in, key), value);
    }
  }

  [[noreturn]] void refuse_unknown(const std::string& in, const std::string& key,
                                   const KeyRules& rules) const {
    std::vector<std::string> known;
    for (const KeyRule& rule : rules) known.emplace_back(rule.key);
    const auto near = nearest_name(key, known);
    throw UsageError(tr("{}: unknown key", where(in, key)),
                     near ? tr("did you mean \"{}\"?", *near) : std::string{});
  }

  void follow(const KeyRule& rule, const std::string& where, const Json& value) {
    switch (rule.fate) {
      case Fate::kOption:
        return give(rule.what, where, value);
      case Fate::kOnly:
        if (value.dump() == rule.what) return;
        throw UsageError(tr("{}: {} is not available, only {}", where, value.dump(), rule.what));
      case Fate::kRefused:
        if (value.is_boolean() && !value.get<bool>()) return;
        throw UsageError(tr("{}: not available: {}", where, translated(rule.what)));
      case Fate::kColumn:
      case Fate::kNothing:
        return;
    }
  }

  /// `option`: a name, or "name=value" for keys that are switches.
  void give(const std::string& option, const std::string& where, const Json& value) {
    const size_t equals = option.find('=');
    const std::string option_name = option.substr(0, equals);
    std::string text;
    if (equals != option.npos) {
      if (!value.is_boolean())
        throw DataError(tr("{}: must be true or false, got {}", where, value.dump()));
      if (!value.get<bool>()) return;
      text = option.substr(equals + 1);
    } else {
      text = value.is_string() ? value.get<std::string>() : value.dump();
    }
    if (option_name == "image_resolution" || option_name == "video_resolution")
      refuse_side(where, value);
    const auto same = [&](const MmDataOption& known) { return known.name == option_name; };
    const auto known = std::find_if(options_.begin(), options_.end(), same);
    if (known == options_.end()) {
      options_.push_back({option_name, text, where});
    } else if (option_name == "packing") {
      if (text == "true") known->value = text;
    } else if (known->value != text) {
      throw UsageError(tr("{} and {} contradict each other", known->origin, where));
    }
  }

  /// Version 1.0.0 had the sides of pictures under this name.
  void refuse_side(const std::string& where, const Json& value) const {
    constexpr int64_t kLeastArea = 28 * 28;
    if (!value.is_number_integer() || value.get<int64_t>() >= kLeastArea) return;
    const auto side = value.get<int64_t>();
    throw UsageError(
        tr("{}: an area in pixels, got {}", where, side),
        tr("the sides that MindSpeed-MM 1.0 had here are written {} since", side * side));
  }

  /// attr as the roles of --map-keys. Columns of the other layout say nothing.
  void read_columns(const Json& attr) {
    if (attr.empty()) return;
    const std::string formatting = json_get<std::string>(attr, "formatting").value_or("sharegpt");
    if (formatting != "sharegpt" && formatting != "alpaca") {
      throw UsageError(
          tr("{}: must be sharegpt or alpaca, got {}", where("attr", "formatting"), formatting));
    }
    const bool is_alpaca = formatting == "alpaca";
    const std::vector<std::string> pairs{"prompt", "query", "response", "history"};
    Json roles = Json::object(), tags = Json::object();
    for (const auto& [key, value] : attr.items()) {
      if (!value.is_null() && !value.is_string() && key != "ranking")
        throw DataError(tr("{}: must be the name of a column", where("attr", key)));
      const bool is_pair = std::find(pairs.begin(), pairs.end(), key) != pairs.end();
      if (key.ends_with("_tag")) {
        if (!value.is_null()) tags[key] = value;
      } else if (key == "system" || key == "tools" || key == "images" || key == "videos" ||
                 (is_alpaca ? is_pair : key == "messages")) {
        roles[key] = value;
      }
    }
    if (!is_alpaca && !tags.empty()) roles["tags"] = tags;
    options_.push_back({"map_keys", roles.dump(), where("", "attr")});
  }

  /// 2.1 has other names for its limits, and rules of its own.
  void choose_rule() {
    const auto has = [&](const std::string& wanted) {
      return std::any_of(options_.begin(), options_.end(),
                         [&](const MmDataOption& option) { return option.name == wanted; });
    };
    const bool is_newer = has("image_max_pixels") || has("image_min_pixels") ||
                          has("video_max_pixels") || has("video_min_pixels");
    const bool is_older = !is_newer && (has("image_resolution") || has("video_resolution"));
    options_.push_back({"pre_resize", is_older ? "mindspeed-mm-2.0" : "mindspeed-mm-2.1", name_});
    if (!is_newer && !is_older) {
      log::notice(
          "{}: no limits of pictures: those of MindSpeed-MM 2.1 and later hold, "
          "image_max_pixels 589824, image_min_pixels 1024, video_max_pixels 65536, "
          "video_min_pixels 256",
          name_);
    }
  }

  std::string name_;
  Json json_;
  std::vector<MmDataOption> options_;
};

}  // namespace

std::vector<MmDataOption> read_mm_data(const std::filesystem::path& path) {
  return MmDataReader(path).read();
}

Options with_mm_data(const Options& options, const std::map<std::string, std::string>& names) {
  if (!options.has_value("mm_data")) return options;
  Options result = options;
  for (const MmDataOption& option : read_mm_data(options.get_string("mm_data"))) {
    const auto renamed = names.find(option.name);
    const std::string& name = renamed == names.end() ? option.name : renamed->second;
    if (!name.empty() && !options.is_given(name))
      result = result.with(name, option.value, option.origin);
  }
  return result;
}

}  // namespace danlu::settings
