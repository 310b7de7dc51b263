// Manual pages (roff, man(7)): written from the tables that --help shows.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/message.h"
#include "cli/command.h"

namespace danlu::cli {
namespace {

/// Text as roff shows it unchanged: quotes and dashes stay what one can copy into a shell.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool at_line_start = out.empty() || out.back() == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else {
      if (c == '.' && at_line_start) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

/// `name`: "danlu-sft". The page's date stays empty: the same sources make the same bytes.
std::string beginning(const std::string& name, const std::string& summary,
                      const std::string& usage) {
  return fmt::format(".TH \"{}\" 1 \"\" \"danlu " DANLU_VERSION
                     "\" \"Danlu\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.nf\n{}\n.fi\n",
                     roff(name), roff(name), roff(one_line(summary)), roff(usage));
}

std::string entry(std::string_view bold, std::string_view text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(bold), roff(text));
}

std::string verb_page(const Command& command) {
  const HelpPage page = command.options().help_page();
  std::string out = beginning("danlu-" + command.name, page.summary, page.usage);
  for (const HelpPage::Section& section : page.sections) {
    out += ".SH " + roff(section.title) + "\n";
    for (const HelpPage::Entry& flag : section.entries) out += entry(flag.flag, flag.text);
  }
  if (!page.ignored.empty()) {
    out += ".SH " + roff(translated("Accepted for compatibility, without effect here")) + "\n" +
           roff(page.ignored) + "\n";
  }
  return out + ".SH NOTES\n" + roff(page.notes.substr(page.notes.find_first_not_of('\n'))) +
         ".SH SEE ALSO\n\\fBdanlu\\fR(1)\n";
}

std::string program_page() {
  std::string out =
      beginning("danlu", tr("prepare data for, train, convert and talk to language models"),
                tr("danlu <command> [file.yaml] [--flag value …]"));
  out += ".SH COMMANDS\n" + roff(tr("Each has a page of its own, such as danlu-sft(1).")) + "\n";
  for (const Command& command : commands())
    out += entry("danlu " + command.name, translated(command.summary));
  out += ".SH ENVIRONMENT\n" + roff(environment_help()) + ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : {
           std::pair{ExitCode::kSuccess, "all was done"},
           {ExitCode::kInternal, "a fault of danlu"},
           {ExitCode::kUsage, "flags or configuration"},
           {ExitCode::kData, "data that cannot be used"},
           {ExitCode::kModel,
            "model, adapter, tokenizer or template, their missing files included"},
           {ExitCode::kDevice, "a device that is missing or fails"},
           {ExitCode::kMemory, "too little memory"},
           {ExitCode::kComm, "communication with other processes"},
           {ExitCode::kIo, "disk or checkpoint"},
           {ExitCode::kNumeric, "diverged training"},
           {ExitCode::kHungUp, "the terminal went away; the state was saved"},
           {ExitCode::kInterrupted, "interrupted; the state was saved"},
           {ExitCode::kTerminated, "terminated; the state was saved"},
       }) {
    out += entry(std::to_string(static_cast<int>(code)), translated(meaning));
  }
  out += ".SH SEE ALSO\n";
  for (const Command& command : commands())
    out += fmt::format(".BR {} (1){}\n", roff("danlu-" + command.name),
                       &command == &commands().back() ? "" : ",");
  return out;
}

}  // namespace

void write_man_pages(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const std::filesystem::path folder = directory;
  write_file_atomic(folder / "danlu.1", program_page());
  for (const Command& command : commands())
    write_file_atomic(folder / fmt::format("danlu-{}.1", command.name), verb_page(command));
}

}  // namespace danlu::cli
