#include "weights/megatron/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "arch/learned_positions.h"
#include "base/error.h"
#include "base/log.h"

namespace danlu::weights::megatron {
namespace {

using torch_file::PyKind;

PyValue text(const char* value) { return PyValue::string(value); }
PyValue number(int64_t value) { return PyValue::integer(value); }
PyValue flag(bool value) { return PyValue::boolean(value); }

/// Rotary bases are whole numbers in practice, and --rotary-base is an integer option.
PyValue rope_base(double theta) {
  return theta == static_cast<double>(static_cast<int64_t>(theta))
             ? number(static_cast<int64_t>(theta))
             : PyValue::real(theta);
}

void put_split(PyValue& args, const arch::ModelConfig& c, const Split& split, const Form& form,
               DType dtype) {
  const arch::Placement placement = arch::place_layers(split.pipeline(), c.num_layers);
  args.put("num_layers", number(c.num_layers + static_cast<int64_t>(split.noop_layers.size())))
      .put("tensor_model_parallel_size", number(split.tp))
      .put("pipeline_model_parallel_size", number(split.pp))
      .put("expert_model_parallel_size",
           number(split.counts_tensor_ranks ? split.ep * split.expert_dealers() : split.ep))
      .put("moe_tp_extend_ep", flag(split.tp_extends_ep && !split.counts_tensor_ranks))
      .put("make_vocab_size_divisible_by", number(split.vocab_divisor))
      .put("padded_vocab_size", number(padded_vocab(c.vocab_size, split)));
  if (split.counts_tensor_ranks || args.find("expert_tensor_parallel_size"))
    args.put("expert_tensor_parallel_size",
             number(split.tp_extends_ep ? split.expert_tp : split.tp));
  const bool is_virtual = split.layers_per_virtual_stage > 0;
  args.put("num_layers_per_virtual_pipeline_stage",
           is_virtual ? number(split.layers_per_virtual_stage) : PyValue::none())
      .put("virtual_pipeline_model_parallel_size",
           is_virtual ? number(static_cast<int64_t>(placement[0].size())) : PyValue::none());
  args.put("num_layer_list",
           split.layer_list.empty()
               ? PyValue::none()
               : PyValue::string(fmt::format("{}", fmt::join(split.layer_list, ","))));
  PyValue noops = PyValue::set();
  for (const int64_t slot : split.noop_layers) noops.append(number(slot));
  args.put("noop_layers", split.noop_layers.empty() ? PyValue::none() : noops);
  const bool legacy = form.dialect == Dialect::kLegacy;
  args.put("use_mcore_models", flag(!legacy))
      .put("use_legacy_models", flag(legacy))
      .put("transformer_impl",
           text(form.dialect == Dialect::kTransformerEngine ? "transformer_engine" : "local"))
      .put("moe_grouped_gemm", flag(form.experts != ExpertForm::kSequential && c.has_experts()))
      .put("params_dtype", PyValue::dtype(dtype))
      .put("bf16", flag(dtype == DType::kBF16))
      .put("fp16", flag(dtype == DType::kF16));
}

void put_experts(PyValue& args, const arch::ModelConfig& c) {
  const arch::ExpertConfig& e = c.experts;
  const bool has = c.has_experts();
  const auto or_none = [&](int64_t value) { return has ? number(value) : PyValue::none(); };
  args.put("num_experts", or_none(e.count))
      .put("moe_router_topk", number(has ? e.per_token : 2))
      .put("moe_intermediate_size", or_none(e.ffn_size))
      .put("moe_ffn_hidden_size", or_none(e.ffn_size))
      .put("norm_topk_prob", flag(e.norm_topk))
      .put("n_shared_experts", has && e.shared_ffn_size > 0 && e.shared_ffn_size % e.ffn_size == 0
                                   ? number(e.shared_ffn_size / e.ffn_size)
                                   : PyValue::none())
      .put("moe_shared_expert_intermediate_size",
           has && e.shared_ffn_size > 0 ? number(e.shared_ffn_size) : PyValue::none())
      .put("shared_expert_gate", flag(e.shared_gate));
  if (c.num_predictions() > 0) {
    args.put("mtp_num_layers", number(c.num_predictions()))
        .put("num_nextn_predict_layers", number(c.num_predictions()));
  }
  // Leading dense layers and a period are all these two can say.
  const auto first = std::find(e.sparse_layer.begin(), e.sparse_layer.end(), true);
  const bool leading = has && std::all_of(first, e.sparse_layer.end(), [](bool s) { return s; });
  // Another pattern is for those who wrote it to name.
  if (has && !leading && args.find("moe_layer_freq")) return;
  args.put("first_k_dense_replace",
           leading ? number(first - e.sparse_layer.begin()) : PyValue::none())
      .put("moe_layer_freq", leading ? number(1) : PyValue::none());
}

/// Writes latent attention's sizes under MindSpeed-LLM's names.
void put_latent(PyValue& args, const arch::ModelConfig& c) {
  const arch::LatentConfig latent = c.latent.value_or(arch::LatentConfig());
  const auto or_none = [&](int64_t value) { return value > 0 ? number(value) : PyValue::none(); };
  args.put("multi_head_latent_attention", flag(c.latent.has_value()))
      .put("q_lora_rank", or_none(latent.q_rank))
      .put("kv_lora_rank", or_none(latent.kv_rank))
      .put("qk_rope_head_dim", or_none(latent.rope_dim))
      .put("qk_nope_head_dim", or_none(latent.nope_dim))
      .put("v_head_dim", or_none(latent.v_dim));
  if (!c.latent || c.rope.scaling != arch::RopeScaling::kYarn) return;
  const auto real = [](double value) { return PyValue::real(value); };
  args.put("rope_scaling_type", text("yarn"))
      .put("rope_scaling_factor", real(c.rope.factor))
      .put("rope_scaling_beta_fast", real(c.rope.beta_fast))
      .put("rope_scaling_beta_slow", real(c.rope.beta_slow))
      .put("rope_scaling_mscale", real(c.rope.mscale.value_or(1.0)))
      .put("rope_scaling_mscale_all_dim", real(c.rope.mscale_all_dim.value_or(0.0)))
      .put("rope_scaling_original_max_position_embeddings", number(c.rope.original_max_positions));
}

/// MindSpeed-LLM's settings of families that differ from Llama in more than sizes; the others'
/// arguments stay as they were.
void put_dense_quirks(PyValue& args, const arch::ModelConfig& c) {
  const bool is_offset = c.norm == arch::NormKind::kRmsOffset;
  if (c.rope.rotated_dims > 0 && !c.latent) {
    args.put("rotary_percent", PyValue::real(static_cast<double>(c.rope.rotated_dims) /
                                             static_cast<double>(c.head_dim)));
  }
  if (c.rope.is_pairwise && !c.latent)
    args.put(c.rope.rotated_dims > 0 ? "use_glm_rope" : "rotary_interleaved", flag(true));
  if (!c.is_gated) {
    // Megatron's own GELU, fused with the bias, is the approximation.
    args.put("swiglu", flag(false)).put("gated_linear_unit", flag(false));
  } else if (c.activation != arch::Activation::kSilu) {
    args.put("swiglu", flag(false)).put("geglu", flag(true));
    args.put("gelu_tanh", flag(c.activation == arch::Activation::kGeluTanh));
  }
  if (is_offset) args.put("add_rmsnorm_offset", flag(true));
  if (c.norm == arch::NormKind::kLayer) args.put("normalization", text("LayerNorm"));
  if (c.norms_embedding) args.put("embed_layernorm", flag(true));
  if (c.has_post_norms) args.put("post_norm", flag(true));
  if (c.head_bias) args.put("add_output_layer_bias", flag(true));
  // Gemma's embeddings are multiplied by the root of their width, MiniCPM's by a number of its own.
  if (is_offset) args.put("input_embeds_norm", flag(true));
  if (!is_offset && c.embedding_scale != 1) args.put("scale_emb", PyValue::real(c.embedding_scale));
  if (c.residual_scale != 1) {
    args.put("scale_depth",
             PyValue::real(c.residual_scale * std::sqrt(static_cast<double>(c.num_layers))));
  }
  if (c.logit_scale != 1) {
    args.put("dim_model_base", PyValue::real(c.logit_scale * static_cast<double>(c.hidden_size)));
  }
  if (c.attention_scale > 0 && !c.latent)
    args.put("query_pre_attn_scalar", PyValue::real(std::pow(c.attention_scale, -2)));
  if (c.attention_softcap > 0)
    args.put("attn_logit_softcapping", PyValue::real(c.attention_softcap));
  if (c.logit_softcap > 0) args.put("output_logit_softcapping", PyValue::real(c.logit_softcap));
}

const char* kind_of_positions(const arch::ModelConfig& c) {
  if (arch::learned_positions(c) > 0) return "learned_absolute";
  return c.alibi ? "alibi" : "rope";
}

/// What config.json decides, experts included.
void put_architecture(PyValue& args, const arch::ModelConfig& c) {
  args.put("hidden_size", number(c.hidden_size))
      .put("ffn_hidden_size", number(c.ffn_size))
      .put("num_attention_heads", number(c.num_heads))
      .put("group_query_attention", flag(c.num_kv_heads != c.num_heads))
      .put("num_query_groups", number(c.num_kv_heads))
      .put("kv_channels", number(c.latent ? c.hidden_size / c.num_heads : c.head_dim))
      .put("position_embedding_type", text(kind_of_positions(c)))
      .put("use_rotary_position_embeddings", flag(c.rope.enabled))
      .put("rotary_base", rope_base(c.rope.theta))
      .put("rotary_percent", PyValue::real(1.0))
      .put("rotary_interleaved", flag(false))
      .put("add_bias_linear", flag(c.mlp_bias))
      .put("add_qkv_bias", flag(c.qkv_bias))
      .put("add_dense_bias", flag(c.o_bias))
      .put("qk_layernorm", flag(c.qk_norm || c.latent))
      .put("swiglu", flag(true))
      .put("gated_linear_unit", flag(true))
      .put("normalization", text("RMSNorm"))
      .put("norm_epsilon", PyValue::real(c.norm_eps))
      .put("layernorm_epsilon", PyValue::real(c.norm_eps))
      .put("apply_layernorm_1p", flag(false))
      .put("post_norm", flag(false))
      .put("untie_embeddings_and_output_weights", flag(!c.tie_embeddings))
      .put("vocab_size", number(c.vocab_size));
  put_latent(args, c);
  put_dense_quirks(args, c);
  put_experts(args, c);
}

int64_t parsed_number(std::string_view word, const std::string& what, const std::string& whole) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  int64_t parsed = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), parsed);
  if (error != std::errc() || stop != word.data() + word.size())
    throw ModelError(tr("{} must be whole numbers, got \"{}\"", what, whole.substr(0, 60)));
  return parsed;
}

std::vector<int64_t> integers_of(const PyValue& value, const std::string& what) {
  std::vector<int64_t> numbers;
  if (value.has_items()) {
    for (const PyValue& item : value.items()) numbers.push_back(whole_number(item, what));
    return numbers;
  }
  if (value.is(PyKind::kInt)) return {value.as_int(what)};
  const std::string& list = value.as_string(what);
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    numbers.push_back(parsed_number(std::string_view(list).substr(begin, end - begin), what, list));
    begin = end + 1;
  }
  return numbers;
}

/// Whether a value is what command lines give, in Python's and torch's own types. Anything else
/// would be what a reader of the new file must run, or have a package for: it is not passed on.
bool is_plain(const PyValue& value, int depth = 0) {
  constexpr int kMaxDepth = 8;
  if (depth > kMaxDepth) return false;
  const auto plain = [&](const PyValue& inner) { return is_plain(inner, depth + 1); };
  if (value.has_items()) return std::all_of(value.items().begin(), value.items().end(), plain);
  if (value.has_entries()) {
    return std::all_of(value.entries().begin(), value.entries().end(),
                       [&](const auto& entry) { return plain(entry.key) && plain(entry.value); });
  }
  switch (value.kind()) {
    case PyKind::kNone:
    case PyKind::kBool:
    case PyKind::kInt:
    case PyKind::kFloat:
    case PyKind::kString:
    case PyKind::kDType:
      return true;
    default:
      return false;
  }
}

PyValue plain_arguments(const PyValue& args) {
  PyValue kept = PyValue::name_space();
  for (const auto& [key, value] : args.entries()) {
    if (is_plain(value)) {
      kept.add(key, value);
    } else if (key.key_text() != "model_type") {  // Megatron's own, which its loader does not read
      log::warning("args.{} is {}: not a plain setting, left out of the new checkpoint",
                   key.key_text(), value.repr());
    }
  }
  return kept;
}

/// A real number that args may hold as Megatron's default where its converters took none from the
/// model: the default states nothing, any other value does.
struct RealFact {
  const char* key;
  double expected;
  const char* config_key;
  double default_value;
};

std::vector<RealFact> real_facts(const arch::ModelConfig& c) {
  std::vector<RealFact> facts{{"norm_epsilon", c.norm_eps, "rms_norm_eps", 1e-5}};
  if (c.rope.enabled) facts.push_back({"rotary_base", c.rope.theta, "rope_theta", 10000});
  return facts;
}

/// What `args` says of the fact, if it is not what is expected.
std::optional<double> differing(const PyValue& args, const RealFact& fact) {
  const PyValue* got = args.find(fact.key);
  const bool is_number = got && (got->is(PyKind::kInt) || got->is(PyKind::kFloat));
  if (!is_number) return std::nullopt;
  constexpr double kRounding = 1e-6;  // one of the two may have been f32 once
  const double value = got->as_float(fact.key);
  if (std::abs(value - fact.expected) <= kRounding * std::abs(fact.expected)) return std::nullopt;
  return value;
}

}  // namespace

PyValue make_arguments(const arch::ModelConfig& c, const Split& split, const Form& form,
                       DType dtype) {
  PyValue args = PyValue::name_space();
  const int64_t positions = c.max_positions > 0 ? c.max_positions : 4096;
  put_split(args, c, split, form, dtype);
  put_job(args, split, split.ep, 1);
  put_architecture(args, c);
  args.put("moe_aux_loss_coeff", PyValue::real(c.experts.aux_loss_coef.value_or(0.0)))
      .put("seq_length", number(positions))
      .put("max_position_embeddings", number(positions))
      .put("add_position_embedding", flag(true))
      .put("apply_query_key_layer_scaling", flag(false))
      .put("tokenizer_type", text("PretrainedFromHF"))
      .put("sequence_parallel", flag(false))
      .put("use_distributed_optimizer", flag(false))
      .put("consumed_train_samples", number(0))
      .put("consumed_valid_samples", number(0));
  return args;
}

PyValue update_arguments(const PyValue& read, const arch::ModelConfig& config, const Split& split,
                         const Form& form, DType dtype) {
  PyValue existing = read.has_entries() ? plain_arguments(read) : PyValue::name_space();
  // A job that was larger (data parallel, context parallel) keeps those sizes as it recorded them.
  const auto size_of = [&](const char* key) {
    constexpr int64_t kMost = 8192;
    const PyValue* size = existing.find(key);
    const int64_t recorded =
        size && !size->is_none() ? whole_number(*size, fmt::format("args.{}", key)) : 1;
    return std::clamp<int64_t>(recorded, 1, kMost);
  };
  const int64_t context_parallel = size_of("context_parallel_size");
  int64_t data_parallel = size_of("data_parallel_size");
  if (data_parallel * context_parallel % split.ep != 0)
    data_parallel = std::lcm(data_parallel, split.ep);
  put_split(existing, config, split, form, dtype);
  put_job(existing, split, data_parallel, context_parallel);
  put_architecture(existing, config);
  return existing;
}

void put_job(PyValue& args, const Split& split, int64_t data_parallel, int64_t context_parallel) {
  int64_t world = split.tp * split.pp;
  if (data_parallel < 1 || context_parallel < 1 ||
      __builtin_mul_overflow(world, data_parallel, &world) ||
      __builtin_mul_overflow(world, context_parallel, &world)) {
    throw UsageError(tr("[split] {} data parallel and {} context parallel ranks are no job",
                        data_parallel, context_parallel));
  }
  args.put("data_parallel_size", number(data_parallel))
      .put("context_parallel_size", number(context_parallel))
      .put("world_size", number(world));
}

int64_t whole_number(const PyValue& value, const std::string& what) {
  if (!value.is(PyKind::kString)) return value.as_int(what);
  return parsed_number(value.text(), what, value.text());
}

namespace {

/// Megatron's own way of experts that fewer ranks cut than stand on the tensor axis; as Split has
/// it.
void put_expert_tensor(int64_t cut, const std::string& where, Split& split) {
  if (cut == split.tp || split.tp_extends_ep) return;
  if (cut < 1 || split.tp % cut != 0 || split.ep % (split.tp / cut) != 0) {
    throw ModelError(tr("{}: its args say that experts are cut over {} of TP{} and divided over "
                        "EP{}, which is not read",
                        where, cut, split.tp, split.ep),
                     tr("a divisor of the tensor-parallel size is, with a multiple of the quotient "
                        "as EP"));
  }
  split.tp_extends_ep = split.counts_tensor_ranks = true;
  split.expert_tp = cut;
  split.ep /= split.expert_dealers();
}

}  // namespace

Split split_of_arguments(const PyValue& args, const std::string& where) {
  Split split;
  const auto integer = [&](const char* key, int64_t fallback) {
    const PyValue* value = args.find(key);
    return value && !value->is_none() ? whole_number(*value, where + ": args." + key) : fallback;
  };
  split.tp = integer("tensor_model_parallel_size", 1);
  split.pp = integer("pipeline_model_parallel_size", 1);
  split.ep = integer("expert_model_parallel_size", 1);
  if (std::min({split.tp, split.pp, split.ep}) < 1) {
    throw ModelError(tr("{}: its args say TP{} PP{} EP{}, which is no possible split", where,
                        split.tp, split.pp, split.ep));
  }
  if (split.pp > 1)
    split.layers_per_virtual_stage = integer("num_layers_per_virtual_pipeline_stage", 0);
  split.vocab_divisor = integer("make_vocab_size_divisible_by", 1);
  constexpr int64_t kMostDivisor = int64_t{1} << 40;
  if (split.vocab_divisor < 1 || split.vocab_divisor > kMostDivisor) {
    throw ModelError(tr("{}: args.make_vocab_size_divisible_by must be from 1 to {}, got {}", where,
                        kMostDivisor, split.vocab_divisor));
  }
  if (const PyValue* extends = args.find("moe_tp_extend_ep"); extends && !extends->is_none())
    split.tp_extends_ep = extends->as_bool(where + ": args.moe_tp_extend_ep");
  const PyValue* experts = args.find("num_experts");
  if (experts && !experts->is_none())
    put_expert_tensor(integer("expert_tensor_parallel_size", split.tp), where, split);
  if (const PyValue* list = args.find("num_layer_list"); list && !list->is_none())
    split.layer_list = integers_of(*list, where + ": args.num_layer_list");
  if (const PyValue* noops = args.find("noop_layers"); noops && !noops->is_none())
    split.noop_layers = integers_of(*noops, where + ": args.noop_layers");
  std::sort(split.noop_layers.begin(), split.noop_layers.end());
  return split;
}

std::vector<std::string> disagreements(const PyValue& args, const arch::ModelConfig& c) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* key, const PyValue& expected, const char* config_key) {
    const PyValue* got = args.find(key);
    if (!got || got->is_none() || *got == expected) return;
    if (expected.is(PyKind::kInt) && got->is(PyKind::kString) &&
        number(whole_number(*got, std::string("args.") + key)) == expected)
      return;
    lines.push_back(tr("args.{} is {}, config.json's {} makes it {}", key, got->repr(), config_key,
                       expected.repr()));
  };
  const Split split = split_of_arguments(args, "the checkpoint");
  compare("num_layers", number(c.num_layers + static_cast<int64_t>(split.noop_layers.size())),
          "num_hidden_layers");
  compare("hidden_size", number(c.hidden_size), "hidden_size");
  compare("ffn_hidden_size", number(c.ffn_size), "intermediate_size");
  compare("num_attention_heads", number(c.num_heads), "num_attention_heads");
  if (!c.latent) compare("kv_channels", number(c.head_dim), "head_dim");
  if (const PyValue* grouped = args.find("group_query_attention");
      grouped && *grouped == PyValue::boolean(true))
    compare("num_query_groups", number(c.num_kv_heads), "num_key_value_heads");
  if (!c.score)  // whose head is its own, whatever the model had before
    compare("untie_embeddings_and_output_weights", flag(!c.tie_embeddings), "tie_word_embeddings");
  if (c.has_experts()) compare("num_experts", number(c.experts.count), "number of experts");
  const double stretched = c.rope.scaling == arch::RopeScaling::kLinear ? c.rope.factor : 1.0;
  if (const PyValue* times = args.find("rotary_seq_len_interpolation_factor");
      times && !times->is_none() &&
      times->as_float("args.rotary_seq_len_interpolation_factor") != stretched)
    compare("rotary_seq_len_interpolation_factor", PyValue::real(stretched), "rope_scaling");
  if (const PyValue* scaled = args.find("use_rope_scaling");
      scaled && *scaled == PyValue::boolean(true) && c.rope.scaling != arch::RopeScaling::kLlama3)
    compare("use_rope_scaling", flag(false), "rope_scaling");
  for (const RealFact& fact : real_facts(c)) {
    const auto got = differing(args, fact);
    if (got && *got != fact.default_value)
      compare(fact.key, PyValue::real(fact.expected), fact.config_key);
  }
  return lines;
}

std::vector<std::string> doubts(const PyValue& args, const arch::ModelConfig& c,
                                int64_t padded_rows) {
  std::vector<std::string> lines;
  for (const RealFact& fact : real_facts(c)) {
    const auto got = differing(args, fact);
    if (!got || *got != fact.default_value) continue;
    lines.push_back(tr("args.{} is {}, Megatron's default, config.json's {} is {:g}", fact.key,
                       args.find(fact.key)->repr(), fact.config_key, fact.expected));
  }
  const PyValue* divisor = args.find("make_vocab_size_divisible_by");
  if (padded_rows == 0 || !divisor || divisor->is_none()) return lines;
  const Split split = split_of_arguments(args, "the checkpoint");
  const int64_t unexplained = padded_rows - padded_vocab(c.vocab_size, split);
  if (unexplained > 0) {
    lines.push_back(
        tr("the embedding has {} rows, {} more than padding config.json's vocab_size of {} "
           "gives: rows from {} on are dropped",
           padded_rows, unexplained, c.vocab_size, c.vocab_size));
  }
  return lines;
}

}  // namespace danlu::weights::megatron
