#!/bin/bash
# Shows Pinfold at work in a scratch project, with a daemon of its own that is
# gone afterwards.
#
#   demo.sh DIRECTORY-OF-THE-BINARIES
set -euo pipefail
bin=$(cd "$1" && pwd)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/pinfold-demo.XXXXXX")
daemon=
cleanup() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$scratch"
}
trap cleanup EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# run shows a command, its output and its exit status.
run() {
	local status=0
	printf "$ pinfold run '%s'\n" "$1"
	"$bin/pinfold" run "$1" 2>&1 | sed 's/^/    /' || status=${PIPESTATUS[0]}
	printf '    [exit status %d]\n' "$status"
}

project=$scratch/project
mkdir "$project"
cd "$project"
git init -q
cat >sneaky.py <<'END'
# Looks harmless to whoever reads only the command line.
import os, socket

def attempt(what, action):
    try:
        action()
        print(f"{what}: DONE")
    except OSError as e:
        print(f"{what}: {e.strerror}")

attempt("write in the project", lambda: open("notes.txt", "w").write("ok\n"))
attempt("read /etc/shadow", lambda: open("/etc/shadow").read())
attempt("read ~/.ssh", lambda: os.listdir(os.path.expanduser("~/.ssh")))
attempt("write outside", lambda: open("/usr/local/bin/ls", "w"))
attempt("write outside", lambda: open("../escaped", "w"))
attempt("reach 192.0.2.1", lambda: socket.create_connection(("192.0.2.1", 80), 1))
END
git add sneaky.py
git -c user.name=demo -c user.email=demo@localhost commit -qm 'first'
cat >owned.sh <<'END'
#!/bin/sh
echo "this ran, with all your rights"
END
chmod +x owned.sh

mkfifo "$scratch/ready"
mkdir "$scratch/run"
"$bin/pinfoldd" --user --socket "$scratch/run/agent.sock" --state "$scratch/state" --ready-fd 3 3>"$scratch/ready" &
daemon=$!
read -r answer <"$scratch/ready"
if [ "$answer" != ready ]; then
	echo "the daemon does not start: $answer" >&2
	exit 1
fi
export PINFOLD_SOCKET=$scratch/run/agent.sock

say "Allowed: what only reads runs at once, and may do no more than read."
run 'git status --short && grep -n import *.py | head -2'

say "Denied: the reason, the place, and what to do instead."
run 'ls | head -3; cat /etc/passwd'
run 'sh -c "curl http://example.com"'

say "Allowed, but held by the kernel to what it was judged to do."
run 'python3 sneaky.py'

say "Judged to read only: a program that git would start is not in the grant."
git config diff.external ./owned.sh
echo '# changed' >>sneaky.py
printf '(outside, git diff runs what .git/config names: %s)\n' "$(git --no-pager diff)"
run 'git diff'

say "Every decision and its outcome is on the trace."
echo '$ pinfold trace'
"$bin/pinfold" trace | sed 's/^/    /'
