// Shell completion: the words come from the option tables, so they cannot go stale.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/command.h"

namespace danlu::cli {
namespace {

std::string flags_of(const Command& command) {
  std::string out = "--help --print_config";
  const OptionTable table = command.options();
  for (const OptionSpec& spec : table.specs())
    if (!spec.is_hidden) out += " --" + spec.name;
  return out;
}

std::string bash_function() {
  std::string verbs, cases;
  for (const Command& command : commands()) {
    verbs += (verbs.empty() ? "" : " ") + command.name;
    cases += fmt::format("    {}) flags=\"{}\" ;;\n", command.name, flags_of(command));
  }
  return fmt::format(R"(_danlu() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} help" -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _danlu danlu
)",
                     verbs, cases);
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_function();
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash_function();
  throw UsageError(tr("[completion] unknown shell '{}'", shell), tr("bash or zsh"));
}

}  // namespace danlu::cli
