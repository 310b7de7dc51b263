#include "weights/hf/nf4_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/error.h"
#include "weights/cast.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

constexpr std::string_view kNf4State = ".quant_state.bitsandbytes__nf4",
                           kOtherStates = ".quant_state.bitsandbytes__", kAbsmax = ".absmax",
                           kQuantMap = ".quant_map", kNestedAbsmax = ".nested_absmax",
                           kNestedMap = ".nested_quant_map";

std::string beside(const std::string& name, std::string_view part) {
  return name + std::string(part);
}

/// A matrix as its files describe it.
struct StoredNf4 {
  Nf4Form form;
  std::vector<int64_t> shape;
  float offset = 0;
  int64_t count() const { return TensorInfo{"", form.dtype, shape}.num_elements(); }
  int64_t blocks() const { return nf4_blocks(count(), form.block); }
};

[[noreturn]] void refuse_nf4(const TensorSource& source, const std::string& name,
                             const std::string& what) {
  throw ModelError(
      tr("{}: {} is not in bitsandbytes' NF4: {}", source.file_of(name).string(), name, what),
      tr("take the unquantised release of the model"));
}

template <typename T>
std::vector<T> read_all(const TensorSource& source, const std::string& name) {
  const TensorInfo* const info = source.find(name);
  std::vector<T> values(static_cast<size_t>(info->num_elements()));
  source.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

template <typename T>
std::vector<T> read_some(const TensorSource& source, const std::string& name, int64_t begin,
                         int64_t end) {
  std::vector<T> values(static_cast<size_t>(end - begin));
  source.read_range(name, begin, end, std::as_writable_bytes(std::span(values)));
  return values;
}

StoredNf4 parse_state(const TensorSource& source, const std::string& name) {
  const std::string key = beside(name, kNf4State);
  const auto bytes = read_all<uint8_t>(source, key);
  const Json state = parse_json(std::string(bytes.begin(), bytes.end()), key);
  const auto number = [&](const char* field) { return json_get<int64_t>(state, field); };
  StoredNf4 stored;
  const auto block = number("blocksize");
  const auto dtype = json_get<std::string>(state, "dtype");
  const auto shape = json_get<std::vector<int64_t>>(state, "shape");
  if (!block || !dtype || !shape || json_get<std::string>(state, "quant_type") != "nf4")
    refuse_nf4(source, name, tr("its quant_state lacks quant_type, blocksize, dtype or shape"));
  if (*block < 32 || *block > kLargestNf4Block || (*block & (*block - 1)) != 0)
    refuse_nf4(source, name, tr("blocks of {} numbers", *block));
  stored.form = {*block, source.find(beside(name, kNestedAbsmax)) != nullptr,
                 dtype_from_name(*dtype)};
  stored.shape = *shape;
  if (!is_floating(stored.form.dtype)) refuse_nf4(source, name, tr("of dtype {}", *dtype));
  if (!stored.form.doubly) return stored;
  const auto offset = json_get<double>(state, "nested_offset");
  if (number("nested_blocksize") != kNf4Group || !offset)
    refuse_nf4(source, name, tr("nested blocks are not of {} factors", kNf4Group));
  stored.offset = static_cast<float>(*offset);
  return stored;
}

void check_part(const TensorSource& source, const std::string& name, std::string_view part,
                DType dtype, int64_t count) {
  const TensorInfo* const info = source.find(beside(name, part));
  if (!info) refuse_nf4(source, name, tr("{} is missing", beside(name, part)));
  if (info->dtype == dtype && info->num_elements() == count) return;
  refuse_nf4(source, name,
             tr("{} is {} {}, expected {} numbers of {}", info->name, dtype_name(info->dtype),
                shape_text(info->shape), count, dtype_name(dtype)));
}

void check_map(const TensorSource& source, const std::string& name, std::string_view part,
               std::span<const float> expected) {
  check_part(source, name, part, DType::kF32, static_cast<int64_t>(expected.size()));
  const auto values = read_all<float>(source, beside(name, part));
  if (!std::equal(values.begin(), values.end(), expected.begin()))
    refuse_nf4(source, name, tr("{} has other numbers", beside(name, part)));
}

StoredNf4 checked_state(const TensorSource& source, const std::string& name) {
  const TensorInfo* const codes = source.find(name);
  if (!codes) {
    throw ModelError(tr("{}: holds {}, and there is no {}",
                        source.file_of(beside(name, kNf4State)).string(), beside(name, kNf4State),
                        name));
  }
  StoredNf4 stored = parse_state(source, name);
  check_part(source, name, "", DType::kU8, (stored.count() + 1) / 2);
  check_part(source, name, kAbsmax, stored.form.doubly ? DType::kU8 : DType::kF32, stored.blocks());
  check_map(source, name, kQuantMap, kNf4Numbers);
  if (!stored.form.doubly) return stored;
  check_part(source, name, kNestedAbsmax, DType::kF32, nf4_blocks(stored.blocks(), kNf4Group));
  check_map(source, name, kNestedMap, nf4_factor_numbers());
  return stored;
}

/// f32 numbers into a span of another type.
void put_rounded(DType dtype, std::span<const float> numbers, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, numbers.data(), numbers.size_bytes());
    return;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint16_t bits =
        dtype == DType::kBF16 ? float_to_bf16(numbers[i]) : float_to_f16(numbers[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

/// Location: empty of a tensor that is as its file has it.
class Nf4Source final : public SourceBase<std::optional<StoredNf4>> {
 public:
  Nf4Source(std::shared_ptr<const TensorSource> from,
            std::vector<std::pair<TensorInfo, std::optional<StoredNf4>>> tensors)
      : from_(std::move(from)) {
    set_tensors(std::move(tensors));
    metadata_ = from_->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[place(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = place(name);
    if (!locations_[index]) return from_->read_range(name, begin, end, out);
    check_range(infos_[index], begin, end, out.size());
    if (begin < end) decode(name, *locations_[index], begin, end, out.data());
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    if (!locations_[place(name)]) return from_->read_rect(name, rect, out, out_stride);
    TensorSource::read_rect(name, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return locations_[place(name)] ? std::span<const std::byte>() : from_->mapped(name);
  }
  Storage storage(const std::string& name) const override {
    const auto& stored = locations_[place(name)];
    if (!stored) return from_->storage(name);
    Storage storage{"NF4", from_->find(name)->size_bytes()};
    for (const std::string_view part : {kAbsmax, kNestedAbsmax}) {
      if (const TensorInfo* const info = from_->find(beside(name, part)))
        storage.size_bytes += info->size_bytes();
    }
    return storage;
  }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    const auto& stored = locations_[place(name)];
    return stored ? std::optional(stored->form) : from_->nf4_form(name);
  }
  Nf4Codes read_nf4(const std::string& name) const override {
    const auto& stored = locations_[place(name)];
    if (!stored) return from_->read_nf4(name);
    Nf4Codes codes;
    codes.codes = read_all<uint8_t>(*from_, name);
    if (!stored->form.doubly) {
      codes.factors = read_all<float>(*from_, beside(name, kAbsmax));
      return codes;
    }
    codes.doubly = {read_all<uint8_t>(*from_, beside(name, kAbsmax)),
                    read_all<float>(*from_, beside(name, kNestedAbsmax)), stored->offset};
    return codes;
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(name);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  size_t place(const std::string& name) const {
    const TensorInfo* info = find(name);
    if (!info) no_such_tensor(name, from_->files().front(), infos_);
    return static_cast<size_t>(info - infos_.data());
  }
  /// Numbers [begin, end), not none.
  void decode(const std::string& name, const StoredNf4& stored, int64_t begin, int64_t end,
              std::byte* out) const {
    const int64_t block = stored.form.block, first = begin / block, last = (end - 1) / block;
    const auto codes = read_some<uint8_t>(*from_, name, begin / 2, (end + 1) / 2);
    const std::vector<float> factors = factors_of(name, stored, first, last + 1);
    std::vector<float> numbers(static_cast<size_t>(end - begin));
    for (int64_t i = begin; i < end; ++i) {
      const unsigned code = nf4_code(codes.data(), i - begin / 2 * 2);
      numbers[static_cast<size_t>(i - begin)] =
          kNf4Numbers[code] * factors[static_cast<size_t>(i / block - first)];
    }
    put_rounded(stored.form.dtype, numbers, out);
  }
  std::vector<float> factors_of(const std::string& name, const StoredNf4& stored, int64_t begin,
                                int64_t end) const {
    if (!stored.form.doubly) return read_some<float>(*from_, beside(name, kAbsmax), begin, end);
    const auto codes = read_some<uint8_t>(*from_, beside(name, kAbsmax), begin, end);
    const int64_t first = begin / kNf4Group;
    const auto groups =
        read_some<float>(*from_, beside(name, kNestedAbsmax), first, (end - 1) / kNf4Group + 1);
    std::vector<float> factors(codes.size());
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto group = static_cast<size_t>((begin + static_cast<int64_t>(i)) / kNf4Group - first);
      factors[i] = nf4_factor(codes[i], groups[group], stored.offset);
    }
    return factors;
  }

  std::shared_ptr<const TensorSource> from_;
};

// --- writing -------------------------------------------------------------------------------------

enum class Part { kWhole, kCodes, kAbsmax, kQuantMap, kNestedAbsmax, kNestedMap, kState };

/// A tensor that is written, and of which matrix it is what.
struct PartOf {
  std::string name;
  Part part = Part::kWhole;
};

/// Writes a number as Python's json.dumps does.
std::string python_number(float value) {
  std::string text = fmt::format("{}", static_cast<double>(value));
  const size_t e = text.find('e');
  return e == std::string::npos && text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string torch_name(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kBF16 ? "bfloat16" : "float16";
}

class QuantisingSource final : public SourceBase<PartOf> {
 public:
  QuantisingSource(std::shared_ptr<const TensorSource> from, const std::vector<std::string>& names,
                   const Nf4Form& form)
      : from_(std::move(from)), form_(form) {
    const std::set<std::string> chosen(names.begin(), names.end());
    std::vector<std::pair<TensorInfo, PartOf>> tensors;
    for (const TensorInfo& info : from_->tensors()) {
      if (!chosen.contains(info.name)) {
        tensors.emplace_back(info, PartOf{info.name});
        continue;
      }
      add(info, tensors);
    }
    set_tensors(std::move(tensors));
    metadata_ = from_->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[place(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const auto& [of, part] = locations_[place(name)];
    if (part == Part::kWhole) return from_->read_range(name, begin, end, out);
    check_range(infos_[place(name)], begin, end, out.size());
    const std::shared_ptr<const Nf4Codes> codes = codes_of(of);
    const std::string state = part == Part::kState ? state_of(of, codes->doubly.offset) : "";
    const auto put = [&](const void* data, size_t item) {
      std::memcpy(out.data(), static_cast<const char*>(data) + static_cast<size_t>(begin) * item,
                  out.size());
    };
    if (out.empty()) return;
    switch (part) {
      case Part::kWhole:
      case Part::kCodes:
        return put(codes->codes.data(), 1);
      case Part::kAbsmax:
        return form_.doubly ? put(codes->doubly.codes.data(), 1) : put(codes->factors.data(), 4);
      case Part::kQuantMap:
        return put(kNf4Numbers.data(), 4);
      case Part::kNestedAbsmax:
        return put(codes->doubly.groups.data(), 4);
      case Part::kNestedMap:
        return put(nf4_factor_numbers().data(), 4);
      case Part::kState:
        return put(state.data(), 1);
    }
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return locations_[place(name)].part == Part::kWhole ? from_->mapped(name)
                                                        : std::span<const std::byte>();
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(locations_[place(name)].name);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  size_t place(const std::string& name) const {
    const TensorInfo* info = find(name);
    if (!info) no_such_tensor(name, from_->files().front(), infos_);
    return static_cast<size_t>(info - infos_.data());
  }
  void add(const TensorInfo& info, std::vector<std::pair<TensorInfo, PartOf>>& tensors) const {
    const int64_t count = info.num_elements(), blocks = nf4_blocks(count, form_.block);
    const auto put = [&](std::string_view suffix, Part part, DType dtype,
                         std::vector<int64_t> shape) {
      tensors.emplace_back(TensorInfo{beside(info.name, suffix), dtype, std::move(shape)},
                           PartOf{info.name, part});
    };
    put("", Part::kCodes, DType::kU8, {(count + 1) / 2, 1});
    put(kAbsmax, Part::kAbsmax, form_.doubly ? DType::kU8 : DType::kF32, {blocks});
    put(kQuantMap, Part::kQuantMap, DType::kF32, {16});
    // The offset, and with it the length of the text that holds it, comes from all numbers.
    const float offset = form_.doubly ? codes_of(info.name)->doubly.offset : 0;
    put(kNf4State, Part::kState, DType::kU8,
        {static_cast<int64_t>(state_of(info.name, offset).size())});
    if (!form_.doubly) return;
    put(kNestedAbsmax, Part::kNestedAbsmax, DType::kF32, {nf4_blocks(blocks, kNf4Group)});
    put(kNestedMap, Part::kNestedMap, DType::kF32, {256});
  }
  std::string state_of(const std::string& name, float offset) const {
    const TensorInfo& info = *from_->find(name);
    std::string state =
        fmt::format(R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "{}", "shape": [{}, {}])",
                    form_.block, torch_name(form_.dtype), info.shape[0], info.shape[1]);
    if (form_.doubly) {
      state +=
          fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                      kNf4Group, python_number(offset));
    }
    return state + "}";
  }

  /// The matrix in NF4; those that were asked for last are kept, since several threads write.
  std::shared_ptr<const Nf4Codes> codes_of(const std::string& name) const {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, codes] : last_)
        if (known == name) return codes;
    }
    const auto form = from_->nf4_form(name);
    const bool is_same = form && *form == form_;
    auto codes = std::make_shared<const Nf4Codes>(is_same ? from_->read_nf4(name) : made(name));
    const std::lock_guard lock(mutex_);
    last_.emplace_back(name, codes);
    if (last_.size() > kKept) last_.pop_front();
    return codes;
  }
  Nf4Codes made(const std::string& name) const {
    const TensorInfo& info = *from_->find(name);
    const int64_t count = info.num_elements(),
                  part = (int64_t{1} << 18) / form_.block * form_.block;
    Nf4Codes made;
    made.codes.resize(static_cast<size_t>((count + 1) / 2));
    made.factors.resize(static_cast<size_t>(nf4_blocks(count, form_.block)));
    std::vector<std::byte> bytes;
    std::vector<float> numbers;
    for (int64_t begin = 0; begin < count; begin += part) {
      const int64_t end = std::min(count, begin + part);
      const auto size = static_cast<size_t>(end - begin);
      bytes.resize(size * dtype_size_bytes(info.dtype));
      numbers.resize(size);
      from_->read_range(name, begin, end, bytes);
      to_floats(info.dtype, bytes, numbers);
      for (size_t i = 0; i < size; ++i) {
        if (std::isfinite(numbers[i])) continue;
        throw ModelError(tr("[weights] {} holds {:g} at element {} {}", name, numbers[i],
                            begin + static_cast<int64_t>(i),
                            tr("in {}", from_->file_of(name).string())));
      }
      quantize_nf4(numbers.data(), end - begin, form_.block, made.codes.data() + begin / 2,
                   made.factors.data() + begin / form_.block);
    }
    if (!form_.doubly) return made;
    made.doubly = quantize_nf4_factors(made.factors);
    made.factors.clear();
    return made;
  }
  /// Converts to f32 by way of the type that is quantised.
  void to_floats(DType dtype, std::span<const std::byte> bytes, std::span<float> numbers) const {
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t bits = 0;
      if (dtype == DType::kF64) {
        double number = 0;
        std::memcpy(&number, bytes.data() + 8 * i, 8);
        numbers[i] = static_cast<float>(number);
      } else if (dtype == DType::kF32) {
        std::memcpy(&numbers[i], bytes.data() + 4 * i, 4);
      } else {
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        numbers[i] = dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
      }
      if (form_.dtype == DType::kBF16) numbers[i] = bf16_to_float(float_to_bf16(numbers[i]));
      if (form_.dtype == DType::kF16) numbers[i] = f16_to_float(float_to_f16(numbers[i]));
    }
  }

  static constexpr size_t kKept = 8;
  std::shared_ptr<const TensorSource> from_;
  Nf4Form form_;
  mutable std::mutex mutex_;
  mutable std::deque<std::pair<std::string, std::shared_ptr<const Nf4Codes>>> last_;
};

/// The linear layers of a decoder, by their whole names, and the parts beside it that keep their
/// type; null where that is the head alone. transformers compares whole names or, of parts, the
/// first ones, which it has under "model." since 4.52.
Json dense_modules(const arch::ModelConfig& config) {
  std::set<std::string> modules;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.name.starts_with("visual.")) {
      modules.insert({"visual", "model.visual"});
    } else if (spec.layer >= 0 && spec.layer < config.num_layers && spec.shape.size() == 2 &&
               !spec.is_bias && spec.tied_to.empty() && !takes_nf4(config, spec)) {
      modules.insert(arch::module_of(spec.name));
    }
  }
  if (modules.empty()) return nullptr;
  modules.insert("lm_head");
  return modules;
}

/// The matrix that a part of this name lies beside; "": it is no part.
std::string matrix_beside(const std::string& name, const std::set<std::string>& matrices) {
  for (const std::string_view part : {kNf4State, kAbsmax, kQuantMap, kNestedAbsmax, kNestedMap}) {
    if (!name.ends_with(part)) continue;
    const std::string of = name.substr(0, name.size() - part.size());
    if (matrices.contains(of)) return of;
  }
  return "";
}

}  // namespace

std::shared_ptr<const TensorSource> with_nf4(std::shared_ptr<const TensorSource> source) {
  std::map<std::string, StoredNf4> states;
  std::set<std::string> matrices;
  for (const TensorInfo& info : source->tensors()) {
    const size_t at = info.name.find(kOtherStates);
    if (at == std::string::npos) continue;
    const std::string name = info.name.substr(0, at);
    if (!info.name.ends_with(kNf4State)) {
      throw ModelError(
          tr("{}: {} is in bitsandbytes' {}, and of its 4-bit types NF4 alone is read",
             source->file_of(info.name).string(), name, info.name.substr(at + kOtherStates.size())),
          tr("take the unquantised release of the model"));
    }
    states.emplace(name, checked_state(*source, name));
    matrices.insert(name);
  }
  if (states.empty()) return source;
  std::vector<std::pair<TensorInfo, std::optional<StoredNf4>>> tensors;
  for (const TensorInfo& info : source->tensors()) {
    const auto found = states.find(info.name);
    if (found != states.end()) {
      tensors.emplace_back(TensorInfo{info.name, found->second.form.dtype, found->second.shape},
                           found->second);
    } else if (matrix_beside(info.name, matrices).empty()) {
      tensors.emplace_back(info, std::nullopt);
    }
  }
  return std::make_shared<Nf4Source>(std::move(source), std::move(tensors));
}

bool takes_nf4(const arch::ModelConfig& config, const arch::ParamSpec& spec) {
  using arch::Role;
  const bool is_in_decoder = spec.layer >= 0 && !config.own_kind(spec.layer);
  const bool is_gate = spec.role == Role::kRouter || spec.role == Role::kSharedExpertGate;
  return is_in_decoder && !is_gate && spec.shape.size() == 2 && !spec.is_bias &&
         spec.role != Role::kEmbedding && spec.role != Role::kHead;
}

std::vector<std::string> names_in_nf4(const arch::ModelConfig& config) {
  std::vector<std::string> names;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.tied_to.empty() && takes_nf4(config, spec)) names.push_back(spec.name);
  }
  return names;
}

int64_t count_nf4(const TensorSource& source) {
  const auto& all = source.tensors();
  return std::count_if(all.begin(), all.end(), [&](const TensorInfo& info) {
    return source.nf4_form(info.name).has_value();
  });
}

std::shared_ptr<const TensorSource> as_nf4(std::shared_ptr<const TensorSource> source,
                                           const std::vector<std::string>& names,
                                           const Nf4Form& form) {
  return std::make_shared<QuantisingSource>(std::move(source), names, form);
}

DType nf4_dtype(DType stored) { return stored == DType::kF64 ? DType::kF32 : stored; }

Json nf4_config(const Nf4Form& form, const arch::ModelConfig& config) {
  return {{"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_compute_dtype", torch_name(form.dtype)},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", form.doubly},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", dense_modules(config)},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"quant_method", "bitsandbytes"}};
}

}  // namespace danlu::weights
