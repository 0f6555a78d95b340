// Package redact takes secrets out of text before it leaves the daemon.
//
// A [Redactor] finds token shapes of common providers, Bearer and Basic
// credentials, private key blocks, JWTs, URLs with passwords, values behind
// secret-like names, and exact values that it was told, each also in base64, hex
// or URL encoding, and puts "[REDACTED:kind]" in their place; when asked, home
// directories become "[LOCAL_PATH]".
//
// # What holds
//
//   - What comes out does not depend on how the text was cut into pieces: a
//     [Writer] holds back what more text could complete into a secret, and
//     nothing else.
//   - Text in which nothing is found comes out byte for byte.
//   - At most [maxHeld] bytes are held back. A secret that is longer is found by
//     its beginning and dropped to its end.
//   - A failure of the redactor withholds: the text in hand and all that follows.
//
// # How
//
// Nearly all text holds no secret, so that the pass over it must be cheap: every
// secret has an anchor, a few bytes such as "ghp_" or "://" (in the names'
// case also in capitals). Three bytes at a time, at every second place, are
// looked up in a table of 64 Ki bits that has the anchors' first and second
// windows. Only what is found there is looked at. Encoded text is found by
// looking at every sixteenth byte whether it lies within a long word.
//
// # Not promised
//
// A secret that a program disguises: reversed, cut up by its own characters or
// over lines, compressed, encrypted or encoded twice. Secrets without a shape or
// a name (a password by itself on a line), unless they are named as exact
// values. Base64 of which the lines are wrapped is read line by line.
package redact
