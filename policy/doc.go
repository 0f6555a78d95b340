// Package policy decides whether a script may run, and what it may do when it
// does.
//
// A [Policy] has facts and rules, both data. Facts (facts/*.toml) say what
// commands do: which words are options, which are paths that are read, written
// or deleted, which are commands in turn. Rules (default.toml) say what a site
// wants. [Policy.Decide] reads a script, finds the effects of every command in
// it, applies the rules to commands and effects, and answers with a [Decision]:
// a verdict, the reasons with their places in the text, and a [Grant].
//
// # How a verdict comes about
//
// Every command gets the verdicts of the rules that name it; without one the
// rule "default" asks. Every effect gets the verdicts of the rules about it.
// The strictest verdict wins, whatever the order. Only rules that name a
// command can allow it, and only when a fact describes that very program: a
// command of the same name in the project, or one without a fact, is asked
// about.
//
// # Layers
//
// [Load] starts from the built-in rules and applies a site's files: each may
// choose a profile, switch off built-in rules by name, add rules, choose what
// happens to commands that no rule names (by command, group and for all), name
// further roots, and protect and hide paths. A rule of the site may stand in the
// place of what facts and built-in rules ask about a command, may narrow the
// grant of a command and widen it. [Policy.Tighten] adds a project's own file,
// which can deny, ask, narrow, protect and hide. Facts are built in. Whoever
// asks may say that a command only reads (ReadsOnly of [Env]): it is then held
// to that.
//
// # Why the profile "workspace" may allow what it does
//
// Under the built-in default python3 runs unasked, and with it any code: what
// bounds it is its grant, which is any program that the sandbox shows, any place
// of the project but protected ones and what steers git, and no network. An
// agent that may not run "cp a b" writes three lines of Python. So to ask about
// a command costs its user an answer and gains nothing, as long as the command
// needs no more than that grant. The profile allows exactly those: every known
// command, unless a rule about its effects objects to what leaves the grant
// (paths outside, devices, protected paths, git directories, the network), or to
// what the grant bounds but cannot undo (directories deleted, history rewritten
// or published, variables that steer later programs), or the text is ambiguous.
// TestWorkspaceNeedsNoMoreThanPython goes through all facts for it.
//
// # Why what is unknown may be allowed
//
// A word may hold something unknown: the output of a command, a variable that
// was read. What stands there at run time could be any text, so it may be an
// option nobody thought of, or a path anywhere. That is bounded by the grant,
// which the kernel holds:
//
//   - A path that is read: nothing of the host exists inside the sandbox but
//     the project and the roots of [Env]. An unknown word can name nothing else.
//   - A path that is written: the grant lists the places. The target of a
//     command that writes what an unknown word names needs the whole of the
//     known directory before the hole, or the project; that is what the
//     decision shows.
//   - An option that runs a program: a pinned grant lists the programs that can
//     be executed, with what they start. An unknown option can name no other.
//   - An option that writes, of a command that only reads: the grant has no
//     place for it.
//   - A protected path, however it comes to be named: no grant that is given
//     unasked opens one.
//   - Text that arithmetic evaluates: the code that it could hold runs in the
//     same shell, under the same grant.
//
// What the grant does not bound is asked about: an unknown command name,
// unknown text that is run as code, a word that begins with a dash and goes on
// unknown, a path that climbs out of an unknown directory, a variable with an
// unknown name, deletion. Within a place that is granted for one part of a
// line, an unknown word of another part may write too: a grant bounds places,
// not which command uses them.
//
// Opaque commands (interpreters and build tools) run code that no fact
// describes. Their grant is the widest that is given unasked: any program that
// the sandbox shows, any place in the project but protected ones, no network.
//
// # Promises
//
//   - Decide always answers and never panics; its work is bounded. What is too
//     large to judge needs approval.
//   - Decide does no I/O but through [Files].
//   - The verdict is never looser than that of any rule that applies.
//   - A project's file never makes a decision looser.
//   - A policy whose examples decide otherwise than they say does not load.
//
// # Not promised
//
//   - That a denied effect could not be had in another way: rules that deny are
//     guard rails. The boundary is the grant.
//   - What an allowed program does inside its grant.
//   - That the file system is still the same when the command runs. A path is
//     judged by where it led when it was decided.
package policy
