#include "train/mesh_cases.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/training_memory.h"

namespace danlu::train {
namespace mesh_test {

using models::Recompute;
using parallel::Sharding;

namespace {

/// GQA, biases, and heads for every axis: every mesh with every scheme.
const char* const kWhole = "qwen2_wide";

/// Every dense family with what sets it apart.
const std::vector<Case>& families() {
  const Json none = Json::object();
  static const std::vector<Case> list = {
      {kWhole, "qwen2", {{"num_attention_heads", 8}}},
      {"qwen2", "qwen2", none},
      {"llama_bias", "llama", {{"attention_bias", true}}},
      {"llama_biases", "llama", {{"attention_bias", true}, {"mlp_bias", true}}},
      {"llama_tied", "llama", {{"tie_word_embeddings", true}}},
      {"qwen3", "qwen3", none},
      {"internlm2", "internlm2", none},
      {"baichuan2", "baichuan", {{"z_loss_weight", 0.1}}},
      {"qwen1", "qwen", none},
      {"baichuan_alibi",
       "baichuan",
       {{"max_position_embeddings", nullptr}, {"model_max_length", 64}}},
      {"mistral", "mistral", {{"sliding_window", 3}}},
      // Joined q, k and v, joined gate and up; frequencies that a segment's length decides.
      {"phi3",
       "phi3",
       {{"original_max_position_embeddings", 6},
        {"rope_scaling",
         {{"type", "longrope"},
          {"short_factor", {1.0, 1.1, 1.2, 1.3}},
          {"long_factor", {1.5, 2.5, 4.0, 8.0}}}}}},
      {"gemma", "gemma", none},
      {"gemma2", "gemma2", none},
      {"gemma3", "gemma3_text", none},
      {"glm", "glm", none},
      {"glm4", "glm4", {{"attention_bias", true}}},
      {"chatglm", "chatglm", none},
      {"minicpm", "minicpm", none},
      {"internlm3", "internlm3", none},
      {"internlm", "internlm", none},
      {"bloom", "bloom", {{"tie_word_embeddings", true}}},
      {"gpt2", "gpt2", {{"tie_word_embeddings", true}}},
      {"latent", "deepseek_v3", none},
      {"latent_bias", "deepseek_v3", {{"attention_bias", true}}},
      {"latent_lite", "deepseek_v2", {{"q_lora_rank", nullptr}}},
      {"minicpm3", "minicpm3", none}};
  return list;
}
const Case& deep() {
  static const Case four_layers{"qwen2_deep", "qwen2", {{"num_hidden_layers", 4}}};
  return four_layers;
}

size_t number_of(const std::string& name) {
  const auto& list = families();
  return static_cast<size_t>(
      std::find_if(list.begin(), list.end(), [&](const Case& c) { return c.name == name; }) -
      list.begin());
}

Case of(const std::string& name, Tuning tuning, const MeshShape& shape,
        Sharding sharding = Sharding::kNone, bool in_files = false,
        Recompute recompute = Recompute::kNone) {
  Case c = name == deep().name ? deep() : families().at(number_of(name));
  c.tuning = tuning;
  c.shape = shape;
  c.sharding = sharding;
  c.in_files = in_files;
  c.recompute = recompute;
  return c;
}

/// As many heads and key heads as the family's models have here.
std::pair<int64_t, int64_t> heads_of(const Case& c) {
  const int64_t heads = c.changes.value("num_attention_heads", 4);
  const std::string family = c.family;
  const bool has_own_keys = family == "baichuan" || family == "bloom" || family == "gpt2" ||
                            family.starts_with("deepseek");
  return {heads, has_own_keys ? heads : 2};
}

/// Heads are exchanged whole; a key head may go to several.
bool shares_heads(const Case& c) {
  const auto [heads, kv_heads] = heads_of(c);
  const int64_t members = c.shape.context.ulysses, own = heads / c.shape.tensor,
                own_kv = std::max<int64_t>(1, kv_heads / c.shape.tensor);
  return own % members == 0 && (own_kv % members == 0 || members % own_kv == 0);
}

/// What can be together: what is refused, and what is the same as without it, is not here.
bool is_possible(const Case& c) {
  const MeshShape& shape = c.shape;
  // One rank is what the others are compared with.
  if (shape.size() == 1 || shape.size() > 8) return false;
  if (shape.sequence_parallel && shape.tensor == 1) return false;
  if (c.sharding != Sharding::kNone && shape.data * shape.context.size() == 1) return false;
  if ((c.chunks > 1 || c.zero_bubble) && shape.pipeline == 1) return false;
  if (c.chunks > 1 && c.zero_bubble) return false;
  if (c.zero_bubble && c.sharding > Sharding::kState) return false;
  if (!shares_heads(c)) return false;
  // Not both biases and adapters: that model's gradient doubles at step 10, where one rank's own
  // cuts into micro-batches differ by 9.8e-6. llama_bias stands in for it.
  return c.tuning == Tuning::kFull || c.name != std::string("llama_biases");
}

const std::vector<Sharding>& shardings() {
  static const std::vector<Sharding> all = {Sharding::kNone, Sharding::kState, Sharding::kGradients,
                                            Sharding::kParameters};
  return all;
}

/// None, heads exchanged, rings, both, and a ring of rings.
const std::vector<settings::ContextShape>& context_shapes() {
  static const std::vector<settings::ContextShape> all = {
      {1, 1, 1}, {2, 1, 1}, {1, 2, 2}, {4, 1, 1}, {1, 4, 4}, {2, 2, 2}, {1, 4, 2}};
  return all;
}

/// One run of layers a stage, two, and the zero-bubble schedule.
enum Order { kOnce, kVirtual, kZeroBubble };

/// Every mesh that `model` can be trained on, with every order of the work and scheme.
std::vector<Case> meshes_of(Case model) {
  std::vector<Case> list;
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t pipeline : {1, 2, 4}) {
      for (const int64_t data : {1, 2, 4}) {
        for (const auto& context : context_shapes()) {
          for (const bool sequence : {false, true}) {
            for (const Order order : {kOnce, kVirtual, kZeroBubble}) {
              for (const Sharding sharding : shardings()) {
                model.shape = {.tensor = tensor,
                               .data = data,
                               .pipeline = pipeline,
                               .context = context,
                               .sequence_parallel = sequence};
                model.chunks = order == kVirtual ? 2 : 1;
                model.zero_bubble = order == kZeroBubble;
                model.sharding = sharding;
                // Stages of two layers where they can have them.
                model.layers = pipeline > 1 ? std::max<int64_t>(4, pipeline * model.chunks) : 2;
                if (is_possible(model)) list.push_back(model);
              }
            }
          }
        }
      }
    }
  }
  return list;
}

/// The possible cases of one family. Offload to the host's memory is not among them: a CPU has
/// everything there anyway, and only files are another place.
std::vector<Case> possible_cases_of(const Case& family) {
  std::vector<Case> list;
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
    for (const bool in_files : {false, true}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        Case c = family;
        c.tuning = tuning;
        c.in_files = in_files;
        c.recompute = recompute;
        for (Case& on_mesh : meshes_of(c)) list.push_back(std::move(on_mesh));
      }
    }
  }
  return list;
}

/// Shares among neighbours, which others have too.
std::vector<Case> hybrids() {
  const MeshShape dp4{.data = 4, .sharers = 2};
  const MeshShape both{.tensor = 2, .data = 4, .sequence_parallel = true, .sharers = 2};
  std::vector<Case> list;
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters})
    list.push_back(of("qwen2", Tuning::kFull, dp4, sharding));
  list.push_back(of("qwen2", Tuning::kLora, both, Sharding::kParameters));
  list.push_back(of("qwen2", Tuning::kFull, both, Sharding::kGradients));
  return list;
}

/// Stages of a layer each, beside the other axes.
std::vector<Case> pipelines() {
  const MeshShape pp2{.pipeline = 2}, pp4{.pipeline = 4};
  const MeshShape with_data{.data = 2, .pipeline = 2}, with_tensor{.tensor = 2, .pipeline = 2};
  const MeshShape all{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true};
  std::vector<Case> list = {of("qwen2_deep", Tuning::kFull, pp4),
                            of("qwen2_deep", Tuning::kDora, pp4),
                            of("llama_tied", Tuning::kFull, pp2),
                            of("baichuan2", Tuning::kFull, with_tensor),
                            of("baichuan_alibi", Tuning::kLora, pp2),
                            of("gemma2", Tuning::kFull, with_tensor),
                            of("gemma3", Tuning::kLora, pp2),
                            of("phi3", Tuning::kFull, with_data, Sharding::kParameters, true),
                            of("minicpm", Tuning::kFull, pp2),
                            of("bloom", Tuning::kFull, all, Sharding::kParameters),
                            of("bloom", Tuning::kLora, with_tensor),
                            of("gpt2", Tuning::kFull, all, Sharding::kParameters),
                            of("gpt2", Tuning::kLora, all),
                            of("chatglm", Tuning::kFull, all),
                            of("qwen2", Tuning::kFull, with_data, Sharding::kParameters, true)};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const MeshShape& shape : {pp2, with_tensor, with_data, all})
      list.push_back(of("qwen2", tuning, shape));
    for (const auto sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters})
      list.push_back(of("qwen2", tuning, all, sharding));
  }
  for (const auto sharding :
       {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters})
    list.push_back(of("llama_tied", Tuning::kFull, all, sharding));
  list.push_back(
      of("qwen2", Tuning::kFull, with_data, Sharding::kGradients, false, Recompute::kFull));
  return list;
}

/// Tokens of a micro-batch shared, by each algorithm, beside the other axes. The families: GQA,
/// ALiBi, sliding windows.
std::vector<Case> contexts() {
  using settings::ContextShape;
  const ContextShape heads{2, 1, 1}, ring{1, 2, 2}, ring4{1, 4, 4}, rings{1, 4, 2}, both{2, 2, 2};
  const auto beside = [](const ContextShape& context, int64_t tensor, int64_t data,
                         int64_t pipeline) {
    return MeshShape{.tensor = tensor,
                     .data = data,
                     .pipeline = pipeline,
                     .context = context,
                     .sequence_parallel = tensor > 1};
  };
  std::vector<Case> list;
  for (const ContextShape& context : {heads, ring, ring4, rings, both})
    list.push_back(of("qwen2", Tuning::kFull, beside(context, 1, 1, 1)));
  for (const ContextShape& context : {heads, ring}) {
    list.push_back(of("qwen2", Tuning::kFull, beside(context, 2, 1, 1)));
    list.push_back(of("qwen2", Tuning::kFull, beside(context, 1, 2, 2), Sharding::kParameters));
    list.push_back(of("qwen2", Tuning::kLora, beside(context, 2, 1, 2)));
    list.push_back(of("qwen2", Tuning::kFull, beside(context, 1, 1, 1), Sharding::kState));
    list.push_back(of("qwen2", Tuning::kFull, beside(context, 1, 2, 1), Sharding::kGradients));
    list.push_back(of("baichuan_alibi", Tuning::kFull, beside(context, 1, 1, 1)));
    list.push_back(of("bloom", Tuning::kFull, beside(context, 2, 1, 1)));
    list.push_back(of("gpt2", Tuning::kFull, beside(context, 2, 1, 1)));
    list.push_back(of("mistral", Tuning::kFull, beside(context, 1, 1, 1)));
    list.push_back(of("gemma2", Tuning::kFull, beside(context, 2, 1, 1)));
    list.push_back(of("phi3", Tuning::kFull, beside(context, 1, 2, 1)));
    list.push_back(of("llama_tied", Tuning::kFull, beside(context, 1, 1, 2)));
    for (const auto recompute : {Recompute::kFull, Recompute::kSelective})
      list.push_back(
          of("qwen2", Tuning::kFull, beside(context, 2, 1, 1), Sharding::kNone, false, recompute));
  }
  // Passes of fewer tokens than ranks: some have none. Where a segment's length bends its rotary
  // frequencies too.
  list.push_back(of("qwen2", Tuning::kFull, beside(ring4, 1, 2, 1)));
  list.push_back(of("llama_bias", Tuning::kLora, beside(rings, 1, 2, 1), Sharding::kParameters));
  Case bent{"llama_dynamic",
            "llama",
            {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}},
             {"max_position_embeddings", 6}}};
  bent.shape = beside(ring4, 1, 2, 1);
  list.push_back(bent);
  list.push_back(of("baichuan2", Tuning::kDora, beside(both, 1, 1, 1)));
  list.push_back(of("mistral", Tuning::kFull, beside(rings, 1, 1, 1)));
  return list;
}

/// Latent attention, whose short vectors each tensor rank makes whole, and whose values are of
/// another width than its keys.
std::vector<Case> latents() {
  using settings::ContextShape;
  const MeshShape tp4{.tensor = 4}, sp2{.tensor = 2, .sequence_parallel = true};
  const MeshShape both{.tensor = 2, .data = 2, .sequence_parallel = true};
  const auto context = [](const ContextShape& shape, int64_t tensor) {
    return MeshShape{.tensor = tensor, .context = shape, .sequence_parallel = tensor > 1};
  };
  const ContextShape heads{2, 1, 1}, ring{1, 2, 2}, rings{2, 2, 2};
  std::vector<Case> list = {
      of("latent", Tuning::kFull, tp4),
      of("latent_bias", Tuning::kFull, sp2),
      of("latent_lite", Tuning::kFull, tp4),
      of("latent_lite", Tuning::kLora, sp2),
      of("latent", Tuning::kLora, sp2),
      of("latent", Tuning::kDora, sp2),
      of("latent", Tuning::kFull, {.pipeline = 2}),
      of("latent", Tuning::kFull, both, Sharding::kParameters, true, Recompute::kFull),
      of("latent", Tuning::kFull, both, Sharding::kState, false, Recompute::kSelective),
      of("latent", Tuning::kFull, context(heads, 1)),
      of("latent", Tuning::kFull, context(ring, 1)),
      of("latent", Tuning::kLora, context(rings, 1)),
      of("latent_lite", Tuning::kFull, context(ring, 2)),
      of("latent", Tuning::kFull, context(heads, 2), Sharding::kNone, false,
         Recompute::kSelective)};
  for (const auto& [part, name] :
       {std::pair{settings::RecomputeFlags{.norm = true}, "_norm"},
        std::pair{settings::RecomputeFlags{.activation_function = true}, "_activation"},
        std::pair{settings::RecomputeFlags{.activation_function = true, .norm = true},
                  "_norm_activation"}}) {
    list.push_back(of("latent", Tuning::kFull, sp2));
    list.back().by_layer = part;
    list.back().by_layer_name = name;
  }
  return list;
}

/// Stages of several runs of layers, and weights' gradients that are left for later.
std::vector<Case> other_orders() {
  const MeshShape pp2{.pipeline = 2}, with_data{.data = 2, .pipeline = 2};
  const MeshShape all{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true};
  const Case tied{
      "llama_tied_deep", "llama", {{"tie_word_embeddings", true}, {"num_hidden_layers", 4}}};
  std::vector<Case> list;
  const auto add = [&](Case c, const MeshShape& shape, Sharding sharding, Tuning tuning,
                       Recompute recompute, bool zero_bubble) {
    c.shape = shape;
    c.sharding = sharding;
    c.tuning = tuning;
    c.recompute = recompute;
    c.zero_bubble = zero_bubble;
    c.chunks = zero_bubble ? 1 : 2;
    list.push_back(c);
  };
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora})
    add(deep(), pp2, Sharding::kNone, tuning, Recompute::kNone, false);
  for (const auto sharding :
       {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    add(deep(), all, sharding, Tuning::kFull, Recompute::kNone, false);
    add(tied, with_data, sharding, Tuning::kFull, Recompute::kFull, false);
  }
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    add(deep(), with_data, Sharding::kParameters, tuning, Recompute::kNone, false);
    list.back().chunks = 4;
    list.back().noops = {0, 2, 5, 7};  // chunks without layers
  }
  add(deep(), with_data, Sharding::kParameters, Tuning::kLora, Recompute::kSelective, false);
  list.back().in_files = true;
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora})
    add(deep(), pp2, Sharding::kNone, tuning, Recompute::kNone, true);
  for (const auto sharding : {Sharding::kNone, Sharding::kState})
    add(deep(), all, sharding, Tuning::kFull, Recompute::kNone, true);
  add(tied, with_data, Sharding::kState, Tuning::kFull, Recompute::kFull, true);
  add(deep(), {.pipeline = 4}, Sharding::kNone, Tuning::kFull, Recompute::kNone, true);
  return list;
}

/// Layers that are run again in groups, and parts of layers.
std::vector<Case> recomputed_layers() {
  const MeshShape dp2{.data = 2}, pp2{.pipeline = 2}, with_data{.data = 2, .pipeline = 2};
  const MeshShape both{.tensor = 2, .data = 2, .sequence_parallel = true};
  std::vector<Case> list;
  const auto add = [&](const MeshShape& shape, Sharding sharding, Tuning tuning,
                       const settings::RecomputeFlags& layers, const char* name) {
    Case c = of(deep().name, tuning, shape, sharding);
    c.by_layer = layers;
    c.by_layer_name = name;
    list.push_back(c);
  };
  const auto uniform = [](int64_t layers) {
    return settings::RecomputeFlags{
        .granularity = "full", .method = "uniform", .num_layers = layers};
  };
  const settings::RecomputeFlags block{.granularity = "full", .method = "block", .num_layers = 1},
      norm{.norm = true}, activation{.activation_function = true},
      parts{.activation_function = true, .norm = true};
  settings::RecomputeFlags block_and_norm = block;
  block_and_norm.norm = true;
  for (const auto sharding : {Sharding::kNone, Sharding::kGradients, Sharding::kParameters})
    add(both, sharding, Tuning::kFull, uniform(2), "_uniform2");
  add(dp2, Sharding::kParameters, Tuning::kLora, uniform(3), "_uniform3");
  add(dp2, Sharding::kParameters, Tuning::kFull, uniform(4), "_uniform4");
  add(with_data, Sharding::kParameters, Tuning::kFull, uniform(2), "_uniform2");
  add(with_data, Sharding::kParameters, Tuning::kLora, uniform(2), "_uniform2");
  add(both, Sharding::kParameters, Tuning::kFull, block_and_norm, "_block_norm");
  add(both, Sharding::kNone, Tuning::kLora, activation, "_activation");
  add(with_data, Sharding::kParameters, Tuning::kFull, block, "_block");
  list.back().chunks = 2;
  add(with_data, Sharding::kParameters, Tuning::kFull, uniform(2), "_uniform2");
  list.back().chunks = 2;
  for (const auto& [part, name] : {std::pair{norm, "_norm"}, std::pair{activation, "_activation"},
                                   std::pair{parts, "_norm_activation"}}) {
    add(pp2, Sharding::kNone, Tuning::kFull, part, name);
    list.back().zero_bubble = true;
  }
  return list;
}

}  // namespace

danlu::test::FactorRow factors_of(const Case& c) {
  const auto& contexts = context_shapes();
  const auto context = std::find_if(contexts.begin(), contexts.end(), [&](const auto& shape) {
    return shape.ulysses == c.shape.context.ulysses && shape.ring == c.shape.context.ring &&
           shape.window == c.shape.context.window;
  });
  return {static_cast<int64_t>(number_of(c.name)),
          static_cast<int64_t>(c.tuning),
          c.shape.tensor,
          c.shape.pipeline,
          c.chunks,
          c.zero_bubble,
          c.shape.data,
          context - contexts.begin(),
          static_cast<int64_t>(c.sharding),
          c.shape.sequence_parallel,
          c.in_files,
          static_cast<int64_t>(c.recompute)};
}

const std::vector<Case>& possible_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    for (const Case& family : families()) {
      for (Case& c : possible_cases_of(family)) list.push_back(std::move(c));
    }
    return list;
  }();
  return all;
}

std::vector<Case> whole_cases() {
  std::vector<Case> list;
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    Case c = families().at(number_of(kWhole));
    c.tuning = tuning;
    for (Case& on_mesh : meshes_of(c)) list.push_back(std::move(on_mesh));
  }
  for (const Case& c : possible_cases_of(families().at(number_of(kWhole)))) {
    const bool has_two_axes = c.shape.pipeline == 1 && c.shape.context.is_alone();
    const bool is_new = c.tuning == Tuning::kDora || c.in_files;
    if (has_two_axes && is_new && c.recompute == Recompute::kNone) list.push_back(c);
  }
  return list;
}

std::vector<Case> covering_cases() {
  const std::vector<Case>& possible = possible_cases();
  std::vector<danlu::test::FactorRow> rows;
  rows.reserve(possible.size());
  for (const Case& c : possible) rows.push_back(factors_of(c));
  std::vector<Case> list;
  for (const size_t i : danlu::test::covering_rows(rows)) list.push_back(possible[i]);
  return list;
}

std::vector<Case> narrow_covering_cases() {
  std::vector<Case> possible;
  std::vector<danlu::test::FactorRow> rows;
  for (const Case& c : possible_cases_of(families().at(number_of(kWhole)))) {
    if (c.in_files || c.tuning == Tuning::kDora) continue;
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      possible.push_back(c);
      possible.back().dtype = dtype;
      rows.push_back(factors_of(c));
      rows.back().push_back(dtype == at::kHalf);
    }
  }
  std::vector<Case> list;
  for (const size_t i : danlu::test::covering_rows(rows)) list.push_back(possible[i]);
  return list;
}

const std::vector<Case>& slow_cases() {
  static const std::vector<Case> all = [] {
    std::set<std::string> names;
    std::vector<Case> once;
    for (const auto& list : {quick_cases(), covering_cases(), whole_cases()}) {
      for (const Case& c : list) {
        if (names.insert(name_of({c, 0})).second) once.push_back(c);
      }
    }
    return once;
  }();
  return all;
}

std::vector<Case> some_of_each_kind(std::vector<Case> all) {
  if (danlu::test::is_slow()) return all;
  std::map<std::string, int> seen;
  std::erase_if(all, [&](const Case& c) {
    const std::string kind = fmt::format(
        "{} {} {} {} {} {} {} {} {} {}", c.name, static_cast<int>(c.tuning), c.shape.pipeline > 1,
        c.shape.context.ulysses > 1, c.shape.context.ring > 1, c.chunks, c.zero_bubble,
        c.noops.size(), c.in_files, static_cast<int>(c.recompute) + c.by_layer_name.size());
    return seen[kind]++ % 3 != 0;
  });
  return all;
}

std::vector<Case> quick_cases() {
  const MeshShape tp2{.tensor = 2}, tp4{.tensor = 4}, dp2{.data = 2}, dp4{.data = 4};
  const MeshShape sp2{.tensor = 2, .sequence_parallel = true},
      sp4{.tensor = 4, .sequence_parallel = true};
  const MeshShape both{.tensor = 2, .data = 2, .sequence_parallel = true};
  const auto zero3 = Sharding::kParameters;
  std::vector<Case> list = {of("llama_biases", Tuning::kFull, sp4),
                            of("llama_tied", Tuning::kFull, tp4),
                            of("qwen3", Tuning::kFull, tp4),
                            of("qwen3", Tuning::kLora, sp2),
                            of("internlm2", Tuning::kFull, tp4),
                            of("internlm2", Tuning::kDora, sp4),
                            of("baichuan2", Tuning::kFull, tp4),
                            of("baichuan2", Tuning::kLora, sp2),
                            of("baichuan_alibi", Tuning::kFull, sp4),
                            of("mistral", Tuning::kFull, tp2),
                            of("qwen2", Tuning::kFull, dp2, zero3, /*in_files=*/true),
                            of("llama_tied", Tuning::kFull, both, zero3),
                            of("baichuan2", Tuning::kFull, dp2, zero3),
                            of("internlm2", Tuning::kLora, both, zero3),
                            of("phi3", Tuning::kFull, tp4),
                            of("phi3", Tuning::kLora, sp2),
                            of("gemma2", Tuning::kFull, sp4),
                            of("gemma2", Tuning::kLora, both, zero3),
                            of("gemma3", Tuning::kFull, tp2),
                            of("glm4", Tuning::kFull, tp4),
                            of("glm4", Tuning::kDora, sp2),
                            of("chatglm", Tuning::kFull, tp4),
                            of("chatglm", Tuning::kDora, both),
                            of("minicpm", Tuning::kFull, sp4),
                            of("bloom", Tuning::kFull, tp4),
                            of("bloom", Tuning::kFull, dp2, zero3),
                            of("bloom", Tuning::kFull, both, zero3),
                            of("bloom", Tuning::kDora, sp2),
                            of("gpt2", Tuning::kFull, sp4),
                            of("gpt2", Tuning::kFull, both, zero3),
                            of("gpt2", Tuning::kDora, sp2)};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
    for (const MeshShape& shape : {tp2, tp4, dp2, dp4, sp2, sp4, both})
      list.push_back(of("qwen2", tuning, shape));
    for (const auto sharding : {Sharding::kState, Sharding::kGradients, zero3}) {
      for (const MeshShape& shape : {dp2, dp4, both})
        list.push_back(of("qwen2", tuning, shape, sharding));
    }
  }
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const auto recompute : {Recompute::kFull, Recompute::kSelective})
      list.push_back(of("qwen2", tuning, both, zero3, false, recompute));
  }
  for (const Case& hybrid : hybrids()) list.push_back(hybrid);
  for (const Case& pipeline : pipelines()) list.push_back(pipeline);
  for (const Case& context : contexts()) list.push_back(context);
  for (const Case& latent : latents()) list.push_back(latent);
  for (const Case& order : other_orders()) list.push_back(order);
  for (const Case& layers : recomputed_layers()) list.push_back(layers);
  return some_of_each_kind(list);
}

}  // namespace mesh_test
}  // namespace danlu::train
