//go:build !race

package policy_test

// slack allows for machines that are busy with other tests.
const slack = 10
