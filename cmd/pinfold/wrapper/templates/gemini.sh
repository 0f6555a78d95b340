# agent: gemini
# seen: 0.61.0
# children: ^/tmp/gemini-shell-[A-Za-z0-9]+/bgpids\.tmp$
shopt -u promptvars nullglob extglob nocaseglob dotglob; _bgpids_file=PINFOLD_children
(
  trap 'jobs -p > "$_bgpids_file"' EXIT
PINFOLD_command
)
__code=$?
exit $__code
