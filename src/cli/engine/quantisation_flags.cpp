#include "cli/engine/quantisation_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "device/select.h"
#include "ops/quantized_linear.h"
#include "weights/hf/packed_weights.h"
#include "weights/lora/trained_base.h"

namespace danlu::cli {
namespace {

/// Takes what `name` asks for. Errors: UsageError where another flag asked for something else.
void ask(const Options& options, const char* name, const std::string& type,
         std::optional<WantedQuantisation>& wanted) {
  const std::string flag = options.given_as(name);
  if (wanted && wanted->type != type) {
    throw UsageError(tr("[{}] asks for {}, [{}] for {}", flag, type, wanted->flag, wanted->type),
                     tr("give one of them"));
  }
  if (!wanted) wanted = {.type = type, .flag = flag};
}

/// "": the flag asks for nothing.
std::string type_of_bits(const Options& options) {
  const int64_t bits = options.get_int_or("quantization_bit", 0);
  if (bits == 0) return "";
  if (bits == 4) return "nf4";
  if (bits == 8) return "q8_0";
  throw UsageError(tr("[{}] weights are held in 4 bits (NF4) or in 8 (Q8_0), got {}",
                      options.given_as("quantization_bit"), bits),
                   tr("--quantize q4_0 holds them in blocks of 4 bits"));
}

/// ms-swift and LLaMA-Factory have flags that shape bitsandbytes' four bits.
void report_idle_shapes(const Options& options, const WantedQuantisation& wanted) {
  if (wanted.type == "nf4") return;
  std::vector<const char*> shapes = {"double_quantization"};
  if (wanted.type != "q8_0")  // whose bits they are is said of eight, too
    shapes.insert(shapes.end(), {"quant_method", "bnb_4bit_quant_type"});
  std::vector<std::string> idle;
  for (const char* name : shapes)
    if (options.is_given(name)) idle.push_back(options.given_as(name));
  if (idle.empty()) return;
  log::notice("{}: without effect, since nothing asks for 4 bits (--quantization_bit 4)",
              fmt::join(idle, ", "));
}

}  // namespace

WantedQuantisation wanted_quantisation(const Options& options) {
  std::optional<WantedQuantisation> asked;
  const std::string own = options.get_string_or("quantize", "auto");
  if (options.is_given("quantize") && own != "auto") ask(options, "quantize", own, asked);
  if (options.get_bool_or("qlora", false)) ask(options, "qlora", "nf4", asked);
  if (options.get_bool_or("load_in_4bit", false)) ask(options, "load_in_4bit", "nf4", asked);
  const std::string by_bits = type_of_bits(options);
  if (!by_bits.empty()) ask(options, "quantization_bit", by_bits, asked);
  const std::string by_name = options.get_string_or("quantization", "");
  if (by_name == "bitsandbytes") ask(options, "quantization", "nf4", asked);
  if (by_name == "gguf") ask(options, "quantization", "auto", asked);
  if (options.get_bool_or("load_in_8bit", false)) ask(options, "load_in_8bit", "q8_0", asked);
  WantedQuantisation wanted = asked.value_or(WantedQuantisation{.type = own});
  wanted.doubly = options.get_bool_or("double_quantization", true);
  if (options.is_given("double_quantization"))
    wanted.doubly_flag = options.given_as("double_quantization");
  if (by_name == "gguf") wanted.gguf_flag = options.given_as("quantization");
  if (wanted.type == "q8_0" && wanted.flag != options.given_as("quantize")) {
    log::info("[{}] 8 bits are Q8_0 here, blocks of 32 weights with a scale each: --quantize q8_0",
              wanted.flag);
  }
  report_idle_shapes(options, wanted);
  return wanted;
}

std::string WantedQuantisation::described() const {
  return type == "nf4" && !doubly ? "nf4 (double_quantization false)" : type;
}

namespace {

void require_named_format(const WantedQuantisation& wanted,
                          const weights::CheckpointSource& source) {
  if (wanted.gguf_flag.empty() || source.format == weights::Format::kGguf) return;
  throw UsageError(tr("[{}] gguf: {} is no GGUF file", wanted.gguf_flag, source.path.string()),
                   tr("leave the flag out, or name the .gguf file by --model"));
}

/// Matrices in NF4 stay as their files have them.
void report_idle_doubly(const WantedQuantisation& wanted, const weights::TensorSource& files) {
  if (wanted.doubly_flag.empty()) return;
  for (const auto& tensor : files.tensors()) {
    const auto form = files.nf4_form(tensor.name);
    if (!form || form->doubly == wanted.doubly) continue;
    log::notice("{}: without effect on matrices that the files hold in NF4", wanted.doubly_flag);
    return;
  }
}

/// Blocks are made of what the files' own codes stand for: both roundings count.
void report_quantised_again(const WantedQuantisation& wanted,
                            const weights::CheckpointSource& source) {
  const std::string packed = source.model ? weights::packed_text(*source.model) : "";
  if (packed.empty()) return;
  log::info("notice: {}",
            tr("{} {}: the model's files are quantised already ({}); their numbers are quantised "
               "again",
               wanted.flag, wanted.type, packed));
}

}  // namespace

WantedQuantisation as_adapters_were_trained(WantedQuantisation wanted,
                                            const weights::CheckpointSource& source,
                                            const std::filesystem::path& adapter) {
  if (adapter.empty() || !source.model) return wanted;
  const std::optional<weights::MadeNf4> made = weights::recorded_nf4(adapter);
  if (!weights::is_other_base(made, *source.model)) return wanted;
  if (wanted.type == "auto") {
    wanted.type = "nf4";
    log::info(
        "notice: {}",
        tr("{}: these adapters were trained on their base in NF4, in which it is held here too; "
           "--quantize none takes its files' numbers",
           adapter.string()));
  } else if (wanted.type != "nf4") {
    log::info(
        "notice: {}",
        tr("{}: these adapters were trained on their base in NF4, and with --quantize {} answer "
           "otherwise than they did there; --quantize nf4 holds it so",
           adapter.string(), wanted.type));
  }
  if (wanted.doubly_flag.empty()) wanted.doubly = made->doubly;
  return wanted;
}

models::Quantisation quantisation_for(const WantedQuantisation& wanted,
                                      const weights::CheckpointSource& source,
                                      const at::Device& device, bool in_parts) {
  require_named_format(wanted, source);
  models::Quantisation quantisation;
  if (wanted.type == "none") return quantisation;
  if (wanted.type == "auto") {
    if (in_parts && source.blocks) {
      log::notice(
          "matrices that the file holds in blocks are made dense: --tensor_parallel_size cuts "
          "them where no block ends");
    } else if (ops::multiplies_quantized(device.type())) {
      quantisation.blocks = source.blocks;
    }
    quantisation.keeps_nf4 = true;
    return quantisation;
  }
  report_quantised_again(wanted, source);
  if (wanted.type == "nf4") {
    if (source.model) report_idle_doubly(wanted, *source.model);
    quantisation.keeps_nf4 = true;
    quantisation.make_nf4.emplace(models::Quantisation::Nf4{.doubly = wanted.doubly});
    return quantisation;
  }
  if (in_parts) {
    throw UsageError(tr("[{}] {} does not go with --tensor_parallel_size: a matrix in parts is cut "
                        "where no block ends",
                        wanted.flag, wanted.type),
                     tr("--quantize nf4 does, and one process holds any of them"));
  }
  if (!ops::multiplies_quantized(device.type())) {
    throw UsageError(
        tr("[{}] {} has no products with weights in blocks", wanted.flag, device::name_of(device)),
        tr("add --device cpu"));
  }
  quantisation.make = wanted.type == "q8_0" ? BlockType::kQ8_0 : BlockType::kQ4_0;
  return quantisation;
}

}  // namespace danlu::cli
