package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A projectFile is a table of a site's file that holds in some projects alone,
// after all else that the site says.
type projectFile struct {
	// Roots are the absolute paths of projects, with "*", "?" and "[a-z]" in each
	// name as in the shell; one that ends in "/" stands for all that lies beneath.
	Roots []string `toml:"roots"`
	choices
}

// A projectPolicy is the policy of projects.
type projectPolicy struct {
	roots  []string
	policy *Policy
}

// For returns the policy that holds in the project, an absolute path with
// symlinks followed: that of the first table of the site's files that names it,
// or else p itself.
func (p *Policy) For(project string) *Policy {
	for _, of := range p.projects {
		if slices.ContainsFunc(of.roots, func(root string) bool { return isRoot(root, project) }) {
			return of.policy
		}
	}
	return p
}

// isRoot reports whether the pattern of a projectFile names the project.
func isRoot(pattern, project string) bool {
	names := strings.Split(project, "/")
	if above, beneath := strings.CutSuffix(pattern, "/"); beneath {
		if pattern = above; len(names) <= strings.Count(above, "/")+1 {
			return false
		}
		names = names[:strings.Count(above, "/")+1]
	}
	matched, err := path.Match(pattern, strings.Join(names, "/"))
	return err == nil && matched
}

// addProject adds the policy of a table.
func (p *Policy) addProject(rules []*ruleFile, site Source, file projectFile) error {
	if len(file.Roots) == 0 {
		return fmt.Errorf("%s: project: roots: want the paths of projects", site.keyAt("", "project"))
	}
	for _, root := range file.Roots {
		clean := strings.TrimSuffix(root, "/")
		if _, err := path.Match(clean, ""); err != nil || !strings.HasPrefix(root, "/") || clean == "" || path.Clean(clean) != clean || climbs(clean) {
			return fmt.Errorf("%s: project: roots: %q: want the absolute path of a project; * ? and [a-z] stand for what they do in the shell, a / at the end for all that lies beneath", at(site, root), root)
		}
	}
	q := *p
	q.projects = nil
	all, err := q.change(rules, site, policyFile{choices: file.choices})
	if err != nil {
		return err
	}
	if err := q.setRules(all); err != nil {
		return fmt.Errorf("%s: %w", site.Name, err)
	}
	q.hash = hashText(p.hash, strings.Join(file.Roots, "\x00"))
	added := slices.DeleteFunc(slices.Clone(all), func(r *ruleFile) bool { return slices.Contains(rules, r) })
	if err := errors.Join(q.checkReplaces(added), q.checkRuleExamples(added)); err != nil {
		return err
	}
	if err := q.checkReached(added, []Source{site}); err != nil {
		return err
	}
	p.projects = append(p.projects, projectPolicy{file.Roots, &q})
	return nil
}
