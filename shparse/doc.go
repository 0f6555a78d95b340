// Package shparse reads shell text as the shell will read it.
//
// [Parse] turns the text of a request into a [Script]: a syntax tree, the
// canonical text that was printed from it, and the doubts about it. The
// canonical text is the only one that may run: it is printed and parsed again
// until nothing changes, and its tree has the same shape as the one that is
// judged. What was judged is therefore what runs.
//
// [Script.Read] walks the tree in the order in which the shell runs it and
// lists what it does: every command with its words, every redirect and
// assignment, every pattern that lists a directory, however deeply nested
// they are (pipes, lists, subshells, loops, functions, case, substitutions,
// here-documents, arithmetic, tests). It follows variables, functions,
// positional parameters and the working directory. A word is known text, one
// of a finite set, or text with holes: places where something unknown stands,
// with what is known around them.
//
// # Promises
//
//   - No command that the shell could run is missing from a reading, unless
//     the reading says so by a [Doubt] or by a hole. Branches that may or may
//     not run are all read; loops are read until their variables settle.
//   - Text that shells could read differently from this package carries a
//     Doubt: control characters, invisible Unicode, comments that end in a
//     backslash, single quotes inside "${x:-…}", extended patterns, unusual
//     here-document delimiters, syntax newer than Bash 5.2.
//   - Strings that the shell evaluates again (eval, trap, subscripts in
//     arithmetic, "${x@P}") are read as code when they are known.
//   - Everything is bounded: [MaxBytes], [MaxNesting] and the other limits are
//     checked before the work that they bound. Parse never panics.
//
// # Not promised
//
//   - What data evaluates to. A variable whose value is unknown may hold text
//     that arithmetic would execute; the reading shows a hole, and what a hole
//     may do is for the caller to bound.
//   - That a command succeeds. A directory that exists is taken to be entered.
//   - Anything about the meaning of external programs.
package shparse
