package api

import _ "embed"

// OpenAPI describes the API, in YAML (OpenAPI 3.1). The daemon serves it at
// /v1/openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI string
