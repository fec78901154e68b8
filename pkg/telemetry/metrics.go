package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"perago/pkg/txn"
)

// Metric describes one metric of a worker, for the documents.
type Metric struct {
	Name string
	// Kind is counter, gauge or histogram.
	Kind   string
	Labels []string
	Help   string
	// buckets are a histogram's upper bounds, in seconds or a ratio.
	buckets []float64
}

// The bounds of the histograms, in seconds. A call to a server takes
// milliseconds; a task may take as long as its uploads do; a merge may take as
// long as its budget allows.
var (
	callBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	taskBuckets  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	mergeBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}
	ratioBuckets = []float64{.01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}
)

// The metrics, each once. The first five have Conductor's canonical worker names
// and its label taskType, so that dashboards made for other workers show ours.
var (
	taskPoll        = Metric{"task_poll_total", "counter", []string{"taskType"}, "Polls sent to Conductor.", nil}
	taskPollTime    = Metric{"task_poll_time_seconds", "histogram", []string{"taskType"}, "Time one poll took.", callBuckets}
	taskExecuteTime = Metric{"task_execute_time_seconds", "histogram", []string{"taskType"}, "Time from the poll's answer to the end of the work, without the update.", taskBuckets}
	taskUpdateTime  = Metric{"task_update_time_seconds", "histogram", []string{"taskType"}, "Time one task update took, each try on its own.", callBuckets}
	taskUpdateError = Metric{"task_update_error_total", "counter", []string{"taskType"}, "Task updates that failed, each try on its own.", nil}

	taskOutcomes     = Metric{"perago_task_outcomes_total", "counter", []string{"task", "outcome"}, "Tasks ended, by outcome: completed, failed, terminal, stale, unreported, handed_back.", nil}
	fenceRejections  = Metric{"perago_fence_rejections_total", "counter", []string{"fence", "reason"}, "Attempts and publications that a fence refused.", nil}
	publishOutcomes  = Metric{"perago_publish_outcomes_total", "counter", []string{"outcome", "fence"}, "Publications decided, by outcome and by the fence that held.", nil}
	mergeDuration    = Metric{"perago_merge_duration_seconds", "histogram", nil, "Time one merge call took.", mergeBuckets}
	mergeBudget      = Metric{"perago_merge_budget_ratio", "histogram", nil, "Share of its budget's merge timeout that one merge call took; 1 is a merge that was cut off.", ratioBuckets}
	phaseDuration    = Metric{"perago_phase_duration_seconds", "histogram", []string{"task", "phase"}, "Time one phase of a task took.", taskBuckets}
	stagedObjects    = Metric{"perago_staged_objects_total", "counter", []string{"change"}, "Objects of completed stages, by change: added, changed, removed, unchanged.", nil}
	stagedBytes      = Metric{"perago_staged_bytes_total", "counter", nil, "Bytes that completed stages uploaded.", nil}
	progressObjects  = Metric{"perago_progress_objects_total", "counter", []string{"task", "phase"}, "Objects that a phase of a task is done with, counted while it works and whatever becomes of the task.", nil}
	progressBytes    = Metric{"perago_progress_bytes_total", "counter", []string{"task", "phase"}, "Bytes that a phase of a task has moved or read, counted while it works, whatever becomes of the task and with what it had to repeat.", nil}
	stagingBranches  = Metric{"perago_staging_branches", "gauge", []string{"state"}, "Staging and source branches that the last whole sweep saw, by what became of them: deleted, kept, failed. 0 until the first one.", nil}
	orphanedBranches = Metric{"perago_orphaned_branches", "gauge", nil, "Staging and source branches that the last whole sweep could not delete, older than PERAGO_SWEEP_TTL and of no workflow that runs. 0 until the first one.", nil}
	unknownWorkflows = Metric{"perago_unknown_workflows", "gauge", nil, "Branches or workspace directories that the last whole sweep kept because Conductor does not know their workflow, and that no later sweep will remove: PERAGO_UNKNOWN_TTL is off, or Conductor knew no workflow at all. 0 until the first one.", nil}
	lostTasks        = Metric{"perago_lost_tasks", "gauge", []string{"task"}, "Tasks of perago's, by type, that the last whole search found lost: Conductor has them scheduled, and their queue is empty. Those of a queue that no worker polls count too. 0 until the first search.", nil}
	unreadWorkflows  = Metric{"perago_unread_workflows", "gauge", nil, "Open workflows that the last whole search for lost tasks did not read, because there are more than 500. 0 until the first search.", nil}
	branchDecisions  = Metric{"perago_branch_decisions_total", "counter", []string{"state"}, "Decisions of cleanups and sweeps on staging and source branches: deleted, kept, failed.", nil}
	directories      = Metric{"perago_workspace_directories_total", "counter", []string{"state"}, "Decisions of sweeps on workspace directories: deleted, kept, failed.", nil}
	sweeps           = Metric{"perago_sweeps_total", "counter", []string{"outcome"}, "Sweeps ended: completed, failed.", nil}
	publishedAfter   = Metric{"perago_published_after_end_total", "counter", nil, "Publications found on a branch that no publish task of their ended workflow put out.", nil}
	inDoubt          = Metric{"perago_in_doubt_total", "counter", nil, "Merges that were sent and whose outcome could not be read.", nil}
	abandoned        = Metric{"perago_abandoned_total", "counter", nil, "Publications that landed but whose completion Conductor did not accept.", nil}
	leaseLost        = Metric{"perago_lease_lost_total", "counter", nil, "Attempts cancelled at work because their lease was lost.", nil}
	readyCondition   = Metric{"perago_ready_condition", "gauge", []string{"condition"}, "Whether a condition of /readyz holds: 1 or 0.", nil}
	lateLandingTotal = Metric{"perago_late_landing_total", "counter", nil, "Commits of a step found above its published commit.", nil}
)

// zeros are series with labels that are there from the start: an alert on an
// increase does not see the first event of a series that begins with it.
var zeros = map[string][][]string{
	publishOutcomes.Name: {{string(txn.OutcomeRaced), ""}, {string(txn.OutcomeRaced), "soft"}, {string(txn.OutcomeRaced), "hard"}},
	fenceRejections.Name: {
		{"publish", "advanced"}, {"publish", "raced"}, {"publish", "hook"}, {"publish", "no_run"},
		{"attempt", string(txn.StaleTaskGone)}, {"attempt", string(txn.StaleTaskStatus)}, {"attempt", string(txn.StaleWorkflowID)},
		{"attempt", string(txn.StaleRetryCount)}, {"attempt", string(txn.StaleWorker)}, {"attempt", string(txn.StalePollCount)},
		{"attempt", string(txn.StaleStartTime)}, {"attempt", string(txn.StaleWorkflowStatus)}, {"attempt", string(txn.StaleUnreadable)},
		{"attempt", string(txn.StaleLeaseLost)},
	},
	sweeps.Name:           {{"completed"}, {"failed"}},
	directories.Name:      {{"deleted"}, {"kept"}, {"failed"}},
	stagingBranches.Name:  {{"deleted"}, {"kept"}, {"failed"}},
	orphanedBranches.Name: {{}},
	unknownWorkflows.Name: {{}},
	lostTasks.Name:        {{string(txn.TypeCheckout)}, {string(txn.TypeStage)}, {string(txn.TypePublish)}, {string(txn.TypeCleanup)}},
	unreadWorkflows.Name:  {{}},
}

// Catalog lists every metric of a worker in the order of the documents.
func Catalog() []Metric {
	return []Metric{
		taskPoll, taskPollTime, taskExecuteTime, taskUpdateTime, taskUpdateError,
		taskOutcomes, fenceRejections, publishOutcomes, mergeDuration, mergeBudget, phaseDuration,
		stagedObjects, stagedBytes, progressObjects, progressBytes, stagingBranches, orphanedBranches, unknownWorkflows, lostTasks, unreadWorkflows, branchDecisions, directories, sweeps,
		inDoubt, abandoned, leaseLost, lateLandingTotal, publishedAfter, readyCondition,
	}
}

// Metrics is the set of a process's metrics, safe for concurrent use. All times
// are given as durations and exported in seconds.
type Metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]*prometheus.HistogramVec

	// lost are the task types that lostTasks has shown a task of.
	lostMu sync.Mutex
	lost   map[txn.TaskType]bool
}

// NewMetrics makes the metrics on a registry of their own, with the Go runtime's
// and the process's beside them.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		counters:   map[string]*prometheus.CounterVec{},
		gauges:     map[string]*prometheus.GaugeVec{},
		histograms: map[string]*prometheus.HistogramVec{},
		lost:       map[txn.TaskType]bool{},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, metric := range Catalog() {
		switch metric.Kind {
		case "counter":
			vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric.Name, Help: metric.Help}, metric.Labels)
			m.counters[metric.Name] = vec
			m.registry.MustRegister(vec)
			// A counter without labels is there from the start: an alert on its
			// increase needs the zero.
			if len(metric.Labels) == 0 {
				vec.WithLabelValues()
			}
			for _, labels := range zeros[metric.Name] {
				vec.WithLabelValues(labels...)
			}
		case "gauge":
			vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metric.Name, Help: metric.Help}, metric.Labels)
			m.gauges[metric.Name] = vec
			// Read at each scrape: see Conditions.
			if metric.Name != readyCondition.Name {
				m.registry.MustRegister(vec)
			}
			for _, labels := range zeros[metric.Name] {
				vec.WithLabelValues(labels...)
			}
		case "histogram":
			vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metric.Name, Help: metric.Help, Buckets: metric.buckets}, metric.Labels)
			m.histograms[metric.Name] = vec
			m.registry.MustRegister(vec)
		}
	}
	return m
}

// Registry is where the metrics are gathered from.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Polled records one poll and the time it took.
func (m *Metrics) Polled(task txn.TaskType, took time.Duration) {
	m.count(taskPoll, 1, string(task))
	m.observe(taskPollTime, took, string(task))
}

// Executed records the time the work of one task took.
func (m *Metrics) Executed(task txn.TaskType, took time.Duration) {
	m.observe(taskExecuteTime, took, string(task))
}

// Updated records one try of a task update and whether it failed.
func (m *Metrics) Updated(task txn.TaskType, took time.Duration, err error) {
	m.observe(taskUpdateTime, took, string(task))
	failed := 0.0
	if err != nil {
		failed = 1
	}
	// There from the first update on: an alert on its increase needs the zero.
	m.count(taskUpdateError, failed, string(task))
}

// TaskOutcome counts one task's end.
func (m *Metrics) TaskOutcome(task txn.TaskType, outcome string) {
	m.count(taskOutcomes, 1, string(task), outcome)
}

// FenceRejection counts one refusal by a fence: attempt, publish or hard.
func (m *Metrics) FenceRejection(fence, reason string) {
	m.count(fenceRejections, 1, fence, reason)
}

// PublishOutcome counts one publication's end and the fence that held: hard,
// soft, or empty when nothing was merged.
func (m *Metrics) PublishOutcome(outcome, fence string) {
	m.count(publishOutcomes, 1, outcome, fence)
}

// Merged records the time one merge call took, whatever it answered, and what
// its budget allowed.
func (m *Metrics) Merged(took, timeout time.Duration) {
	m.observe(mergeDuration, took)
	m.histograms[mergeBudget.Name].WithLabelValues().Observe(took.Seconds() / timeout.Seconds())
}

// Phase records the time one phase of a task took.
func (m *Metrics) Phase(task txn.TaskType, phase string, took time.Duration) {
	m.observe(phaseDuration, took, string(task), phase)
}

// Progress gives what a phase of a task counts its work with while it is at it.
// Bytes below 0 take back those of a try that is repeated: they went over the wire
// all the same, and stay counted.
func (m *Metrics) Progress(task txn.TaskType, phase string) (count func(objects int, bytes int64)) {
	ofObjects := m.counters[progressObjects.Name].WithLabelValues(string(task), phase)
	ofBytes := m.counters[progressBytes.Name].WithLabelValues(string(task), phase)
	return func(objects int, bytes int64) {
		if objects > 0 {
			ofObjects.Add(float64(objects))
		}
		if bytes > 0 {
			ofBytes.Add(float64(bytes))
		}
	}
}

// Staged counts objects of a staged projection by their change.
func (m *Metrics) Staged(change string, objects int) {
	m.count(stagedObjects, float64(objects), change)
}

// StagedBytes counts bytes uploaded to a staging branch.
func (m *Metrics) StagedBytes(bytes int64) { m.count(stagedBytes, float64(bytes)) }

// StagingBranches sets how many branches the last sweep saw in a state.
func (m *Metrics) StagingBranches(state string, branches int) {
	m.gauges[stagingBranches.Name].WithLabelValues(state).Set(float64(branches))
}

// OrphanedBranches sets how many branches the last sweep could not delete although
// they are too old.
func (m *Metrics) OrphanedBranches(branches int) {
	m.gauges[orphanedBranches.Name].WithLabelValues().Set(float64(branches))
}

// UnknownWorkflows sets how many branches or directories the last sweep kept because
// Conductor does not know their workflow.
func (m *Metrics) UnknownWorkflows(kept int) {
	m.gauges[unknownWorkflows.Name].WithLabelValues().Set(float64(kept))
}

// LostTasks sets how many tasks of each type a search found lost; a type that is not
// among them has none.
func (m *Metrics) LostTasks(lost map[txn.TaskType]int) {
	m.lostMu.Lock()
	defer m.lostMu.Unlock()
	for kind := range lost {
		m.lost[kind] = true
	}
	for kind := range m.lost {
		m.gauges[lostTasks.Name].WithLabelValues(string(kind)).Set(float64(lost[kind]))
	}
}

// UnreadWorkflows sets how many open workflows a search did not read.
func (m *Metrics) UnreadWorkflows(workflows int) {
	m.gauges[unreadWorkflows.Name].WithLabelValues().Set(float64(workflows))
}

// BranchDecided counts one decision on a staging or source branch.
func (m *Metrics) BranchDecided(state string) { m.count(branchDecisions, 1, state) }

// DirectoryDecided counts one decision on a workspace directory.
func (m *Metrics) DirectoryDecided(state string) { m.count(directories, 1, state) }

// Swept counts one sweep's end.
func (m *Metrics) Swept(err error) {
	outcome := "completed"
	if err != nil {
		outcome = "failed"
	}
	m.count(sweeps, 1, outcome)
}

// PublishedAfterEnd counts one publication that no publish task of its ended
// workflow put out.
func (m *Metrics) PublishedAfterEnd() { m.count(publishedAfter, 1) }

// InDoubt counts one merge whose outcome could not be read.
func (m *Metrics) InDoubt() { m.count(inDoubt, 1) }

// Abandoned counts one landed publication whose completion was not accepted.
func (m *Metrics) Abandoned() { m.count(abandoned, 1) }

// LeaseLost counts one attempt cancelled at work.
func (m *Metrics) LeaseLost() { m.count(leaseLost, 1) }

// LateLanding counts one commit of a step found above its published commit.
func (m *Metrics) LateLanding() { m.count(lateLandingTotal, 1) }

// Conditions exports what holds at each scrape; called once.
func (m *Metrics) Conditions(now func() []Condition) {
	m.registry.MustRegister(&conditionCollector{gauge: m.gauges[readyCondition.Name], now: now})
}

// conditionCollector asks for the conditions when it is scraped, because one of
// them changes by the mere passing of time.
type conditionCollector struct {
	gauge *prometheus.GaugeVec
	now   func() []Condition
	// scrape keeps two scrapes at once from emptying each other's gauges.
	scrape sync.Mutex
}

func (c *conditionCollector) Describe(to chan<- *prometheus.Desc) { c.gauge.Describe(to) }

func (c *conditionCollector) Collect(to chan<- prometheus.Metric) {
	c.scrape.Lock()
	defer c.scrape.Unlock()
	c.gauge.Reset()
	for _, condition := range c.now() {
		holds := 0.0
		if condition.OK {
			holds = 1
		}
		c.gauge.WithLabelValues(condition.Name).Set(holds)
	}
	c.gauge.Collect(to)
}

func (m *Metrics) count(metric Metric, by float64, labels ...string) {
	m.counters[metric.Name].WithLabelValues(labels...).Add(by)
}

func (m *Metrics) observe(metric Metric, took time.Duration, labels ...string) {
	m.histograms[metric.Name].WithLabelValues(labels...).Observe(took.Seconds())
}
