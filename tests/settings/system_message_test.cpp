// What --system says of training: a message, or the text file that holds it.
#include <gmock/gmock.h>

#include <fstream>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

TEST_F(TrainOptions, AFileForASystemMessageIsAText) {
  const auto file = [&](const char* name, const std::string& bytes) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  };
  const std::string marked = file("marked.txt",
                                  "\xEF\xBB\xBF"
                                  "Be brief.\r\nBe kind.\r\n");
  EXPECT_EQ(with("sft", {"--system", marked}).data.system, "Be brief.\nBe kind.\n");
  const std::string longest = file("longest", std::string(1 << 20, 'a'));
  EXPECT_EQ(with("sft", {"--system", longest}).data.system.size(), size_t{1} << 20);
  const std::string weights = file("model.safetensors", std::string((1 << 20) + 1, 'a'));
  EXPECT_THAT(refusal("sft", {"--system", weights}), HasSubstr("longer than 1 MiB"));
  const std::string latin = file("latin.txt", "gr\xFC\xDF dich");
  EXPECT_THAT(refusal("sft", {"--system", latin}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("sft", {"--system", (directory_ / "").string()}), HasSubstr("directory"));
}

TEST_F(TrainOptions, AMisspeltPathIsNoSystemMessage) {
  for (const char* path :
       {"prompt.md", "prompts/system", "./my prompts/p.txt", "~/p q.txt", "/nowhere/my p.prompt"})
    EXPECT_THAT(refusal("sft", {"--system", path}), HasSubstr("no such file")) << path;
  for (const char* message :
       {"/no_think", "Write into a.txt", "Answer yes/no.", "你是专家/助手", "a\nb.txt"})
    EXPECT_EQ(with("sft", {"--system", message}).data.system, message);
}

}  // namespace danlu::settings::options_test
