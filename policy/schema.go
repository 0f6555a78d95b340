package policy

import _ "embed"

// Schema is the JSON Schema of policy files, for editors and other tools.
//
//go:embed schema.json
var Schema string
