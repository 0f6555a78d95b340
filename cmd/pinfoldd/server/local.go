package server

import (
	"os"
	"path/filepath"

	"github.com/pinfold/pinfold/policy"
)

// Local returns an environment in which policies can be compared without a
// daemon: the project, whose symlinks are followed, as the calling user sees it,
// and the system's programs. It has none of the toolchains of a home.
func Local(project string, rules *policy.Policy) (policy.Env, error) {
	real, err := filepath.EvalSymlinks(project)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return policy.Env{}, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/nonexistent"
	}
	env := policy.Env{Project: real, Dir: ".", Home: home, Readable: rules.Readable(), Writable: rules.Writable()}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if !within(real, dir) {
			env.Writable = append(env.Writable, dir)
		}
	}
	env.Readable = append(env.Readable, env.Writable...)
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			env.Readable = append(env.Readable, dir)
		}
	}
	for _, dir := range []string{"/usr/local/go/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			env.Path = append(env.Path, dir)
		}
	}
	env.Files = &tree{project: real, private: private(rules, env.Writable)}
	return env, nil
}
