"""trueflops completion: the script that has a shell complete our command lines.

The scripts are adapters of a few lines: what may stand where, `trueflops completion SHELL -- WORD…`
says at every Tab, so that a script stays right when commands, flags or the catalog grow.
"""

from __future__ import annotations

import argparse
from typing import Final

from trueflops.cli.completing import candidates
from trueflops.errors import BadInput
from trueflops.language import say

FILES: Final = ":files"
"""A line that asks the shell for its own file names."""

BASH: Final = r"""# trueflops: completion for bash (4 or newer). In ~/.bashrc:
#   eval "$(trueflops completion bash)"
_trueflops() {
    local word meaning
    local cur=${COMP_WORDS[COMP_CWORD]}
    [[ $cur == "=" ]] && cur=
    COMPREPLY=()
    while IFS=$'\t' read -r word meaning; do
        if [[ $word == :files ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur")
        else
            COMPREPLY+=("$word")
        fi
    done < <("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _trueflops trueflops
"""

ZSH: Final = r"""#compdef trueflops
# trueflops: completion for zsh. In ~/.zshrc, after compinit:
#   eval "$(trueflops completion zsh)"
_trueflops() {
    local word meaning files
    local -a found
    while IFS=$'\t' read -r word meaning; do
        if [[ $word == :files ]]; then
            files=1
        else
            found+=("${word//:/\\:}${meaning:+:$meaning}")
        fi
    done < <("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) && _describe -V trueflops found -U
    [[ -n $files ]] && _files
    return 0
}
if [[ ${funcstack[1]} == _trueflops ]]; then
    _trueflops "$@"
else
    compdef _trueflops trueflops
fi
"""

FISH: Final = r"""# trueflops: completion for fish. In ~/.config/fish/config.fish:
#   trueflops completion fish | source
function __trueflops_complete
    set -l typed (commandline -opc)
    set -l cur (commandline -ct)
    for line in ($typed[1] completion fish -- $typed[2..-1] "$cur" 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path "$cur"
        else
            echo $line
        end
    end
end
complete -c trueflops -f -a '(__trueflops_complete)'
"""

SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(options: argparse.Namespace) -> int:
    """Print the script; or, asked by it, what may stand at the end of a line."""
    if not options.words:
        print(SCRIPTS[options.shell], end="")
        return 0
    if len(options.words) > 1000:
        raise BadInput(say("a line of more than 1,000 words is not completed; type fewer"))
    found = candidates(options.words)
    for word, meaning in found.words:
        print(f"{word}\t{meaning}" if meaning else word)
    if found.files:
        print(FILES)
    return 0
