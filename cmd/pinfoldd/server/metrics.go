package server

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pinfold/pinfold/confine"
)

// maxRuleLabels bounds the ids of rules that metrics tell apart: a project's own
// file can name as many as it likes. Those beyond are counted as "other".
const maxRuleLabels = 500

// The steps of a command whose times are measured.
const (
	stepJudge   = "judge"   // look things up, parse, decide
	stepApprove = "approve" // wait for somebody's yes or no
	stepRecord  = "record"  // write the decision
	stepRun     = "run"     // from the request for it to the last process's end
)

// metrics are what GET /metrics on the control socket tells. No label holds
// anything of a command.
type metrics struct {
	handler   http.Handler
	runs      *prometheus.CounterVec // verdict, code
	denials   *prometheus.CounterVec // rule
	approvals *prometheus.CounterVec // act
	steps     *prometheus.HistogramVec
	missing   *prometheus.GaugeVec // layer

	mu    sync.Mutex
	rules map[string]bool // labels of denials so far
}

func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{
		rules: map[string]bool{},
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pinfold_runs_total",
			Help: "Commands that were decided, by the policy's verdict and the code of what came of them: OK when the command ended by itself, whatever its status."}, []string{"verdict", "code"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pinfold_denials_total",
			Help: "Commands that were denied, by the rule that denied them."}, []string{"rule"}),
		approvals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pinfold_approvals_total",
			Help: "What happened to approvals, by act: asked, allowed, denied, and so on, as on the trace."}, []string{"act"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "pinfold_step_seconds",
			Help:    "Time of the steps of commands.",
			Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000}}, []string{"step"}),
		missing: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pinfold_layer_missing",
			Help: "1 for a layer of the confinement that was found missing when it was last needed or probed."}, []string{"layer"}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pinfold_build_info", Help: "1, with the daemon's version and setting.",
		ConstLabels: prometheus.Labels{"version": s.Version, "build": s.Build, "setting": s.Setting}})
	build.Set(1)
	r.MustRegister(m.runs, m.denials, m.approvals, m.steps, m.missing, build,
		gauge("pinfold_runs_active", "Commands under way, those that are being decided included.", func() float64 { return float64(s.underWay()) }),
		gauge("pinfold_sessions", "Sessions that are kept ready.", func() float64 { return float64(s.Confiner.Sessions()) }),
		gauge("pinfold_halted", "1 while nothing may start.", func() float64 {
			if s.halted.now() {
				return 1
			}
			return 0
		}),
		gauge("pinfold_trace_lag_seconds", "Age of the oldest record that is not yet on the disk.", func() float64 { age, _ := s.Trace.Lag(); return age.Seconds() }),
		gauge("pinfold_trace_owed_records", "Outcomes that could not be written yet.", func() float64 { _, owed := s.Trace.Lag(); return float64(owed) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: s.Log})
	return m
}

// step measures a step that began at the time.
func (m *metrics) step(name string, began time.Time) {
	m.steps.WithLabelValues(name).Observe(time.Since(began).Seconds())
}

// ended counts a command, and what came of it.
func (m *metrics) ended(verdict, code string) {
	if code == "" {
		code = "OK"
	}
	m.runs.WithLabelValues(verdict, code).Inc()
}

// denied counts a denial of the rule.
func (m *metrics) denied(rule string) {
	m.mu.Lock()
	if !m.rules[rule] && len(m.rules) >= maxRuleLabels || rule == "" {
		rule = "other"
	} else {
		m.rules[rule] = true
	}
	m.mu.Unlock()
	m.denials.WithLabelValues(rule).Inc()
}

// probed takes over which layers are there.
func (m *metrics) probed(layers []confine.Layer) {
	for _, l := range layers {
		value := 1.0
		if l.OK {
			value = 0
		}
		m.missing.WithLabelValues(l.Name).Set(value)
	}
}

// underWay is how many slots are taken.
func (s *Server) underWay() (n int64) {
	s.runsMu.Lock()
	defer s.runsMu.Unlock()
	for _, runs := range s.runs {
		n += runs
	}
	return n
}

// readMetrics answers GET /metrics on the control socket.
func (s *Server) readMetrics(w http.ResponseWriter, r *http.Request, _ *peer) *failure {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.writeTime))
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}
