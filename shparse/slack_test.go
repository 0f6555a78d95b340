//go:build !race

package shparse

// slack allows for machines that are busy with other tests.
const slack = 10
