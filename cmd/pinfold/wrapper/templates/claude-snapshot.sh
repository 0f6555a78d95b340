# agent: claude
# seen: 2.1.332
# snapshot: ^/.+/\.claude/shell-snapshots/snapshot-(bash|zsh)-[0-9]+-[a-z0-9]+\.sh$
# final_dir: ^/tmp/claude-[0-9a-f]+-cwd$
source PINFOLD_snapshot 2>/dev/null || true && \builtin shopt -u extglob 2>/dev/null || true && { \builtin unalias -- 'which'; \builtin unset -f -- 'which'; } >/dev/null 2>&1 || true && { \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; } >/dev/null 2>&1 || true && eval PINFOLD_command < /dev/null && pwd -P >| PINFOLD_final_dir
