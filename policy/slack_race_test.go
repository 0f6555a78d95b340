//go:build race

package policy_test

// slack allows for the race detector, which makes deciding many times slower.
const slack = 40
