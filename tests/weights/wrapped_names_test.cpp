// Names that wrappers put around a model's own.
#include "weights/hf/wrapped_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/random_models.h"

namespace danlu::weights {
namespace wrapped_names_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const TensorSource> named(const std::vector<std::string>& names) {
  test::RandomModels random(3);
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) infos.push_back({name, DType::kF32, {2, 3}});
  return random.source(infos);
}
std::vector<std::string> names_of(const std::shared_ptr<const TensorSource>& source) {
  std::vector<std::string> names;
  for (const TensorInfo& info : source->tensors()) names.push_back(info.name);
  return names;
}
std::vector<std::string> adapter(const std::vector<std::string>& names) {
  return names_of(as_adapter_file(named(names), "file"));
}

TEST(WrappedNames, PartsOfWrappersAreLeftOutAndSaid) {
  const auto plain = named({"model.norm.weight"});
  EXPECT_EQ(without_wrappers(plain, "file"), plain);
  testing::internal::CaptureStderr();
  const auto wrapped = named(
      {"_orig_mod.model.norm.weight", "_orig_mod.model.layers.0._checkpoint_wrapped_module.x"});
  const auto found = without_wrappers(wrapped, "file");
  EXPECT_THAT(names_of(found), ElementsAre("model.layers.0.x", "model.norm.weight"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("_orig_mod"));
  EXPECT_EQ(test::read_tensor(*found, "model.norm.weight"),
            test::read_tensor(*wrapped, "_orig_mod.model.norm.weight"));
  EXPECT_EQ(test::read_tensor_range(*found, "model.norm.weight", 2, 5),
            test::read_tensor_range(*wrapped, "_orig_mod.model.norm.weight", 2, 5));
  EXPECT_THAT(
      names_of(without_wrappers(named({"module.module.model.a", "module.model.module.b"}), "file")),
      ElementsAre("model.a", "model.module.b"))
      << "at the beginning alone";
}

TEST(WrappedNames, TwoThatWouldBecomeOneAreAnError) {
  EXPECT_THAT(test::error_of<ModelError>(
                  [] { without_wrappers(named({"model.a", "_orig_mod.model.a"}), "some/file"); }),
              testing::AllOf(HasSubstr("some/file"), HasSubstr("_orig_mod.model.a")));
}

TEST(WrappedNames, AnAdaptersOwnNameIsLeftOut) {
  const std::string at = "base_model.model.model.";
  EXPECT_THAT(adapter({at + "q.lora_A.default.weight", at + "q.lora_B.default.weight",
                       at + "e.lora_embedding_A.default", at + "m.lora_magnitude_vector.default",
                       at + "n.lora_magnitude_vector.default.weight",
                       at + "h.modules_to_save.default.weight"}),
              testing::UnorderedElementsAre(
                  at + "q.lora_A.weight", at + "q.lora_B.weight", at + "e.lora_embedding_A",
                  at + "m.lora_magnitude_vector", at + "n.lora_magnitude_vector", at + "h.weight"));
  EXPECT_THAT(adapter({"_orig_mod." + at + "q.lora_A.mine.weight"}),
              ElementsAre(at + "q.lora_A.weight"));
  EXPECT_THAT(adapter({at + "q.lora_A.weight", at + "e.lora_embedding_B", at + "h.weight"}),
              ElementsAre(at + "e.lora_embedding_B", at + "h.weight", at + "q.lora_A.weight"))
      << "as PEFT writes files";
  EXPECT_THAT(test::error_of<ModelError>(
                  [&] { adapter({at + "q.lora_A.one.weight", at + "q.lora_A.two.weight"}); }),
              HasSubstr("several names: one, two"));
}

}  // namespace wrapped_names_test
}  // namespace danlu::weights
