// What the axes show: FLOP a second against intensity, the same a joule, or a GPU's instructions against transactions
// ("An Instruction Roofline Model for GPUs", Ding and Williams 2019). A view says where a point stands and what its roofs
// are; what draws them does not know which view it is.

const kMemories = Object.fromEntries(study.levels);  // names, farthest from the core first
const kSectorBytes = 32, kWavefrontBytes = 128;

const levelsAmong = (names, has) => Object.keys(names).filter((level) =>
  points.some((point) => point.group >= 0 && has(point, level)));

// A roof in the units of another view; without one there, null.
const roofIn = (roof, value, text) =>
  value > 0 ? { ...roof, value, q1: value, q3: value, low: undefined, high: undefined, text } : null;

const timeView = {
  title: "FLOP/s",
  levelNames: kMemories,
  levels: () => unique(["dram", ...levelsAmong(kMemories, (point, level) => point.traffic[level])]),
  has: (point, level) => point.traffic[level] !== undefined,
  x: (point, level) => point.flop / point.traffic[level].bytes,
  y: (point) => point.flop / point.seconds,
  roofs: (group) => group.roofs,
  walls: () => [],
  xTitle: (level) => `intensity, FLOP/byte (${level})`,
  yTitle: "performance, FLOP/s",
  missing: (level) => `no Q at ${level}`,
};

const energyView = {
  ...timeView,
  title: "FLOP a joule",
  has: (point, level) => point.traffic[level] !== undefined && point.joules > 0,
  y: (point) => point.flop / point.joules,
  roofs: (group) => group.roofs.map((roof) => roofIn(roof, roof.perJoule,
    withPrefix(roof.perJoule, roof.bandwidth ? "B/J" : "FLOP/J"))).filter(Boolean),
  yTitle: "FLOP a joule, idle power included",
  missing: (level) => `no energy, or no Q at ${level}`,
};

// Of global and shared memory, only the instructions that access it count, and walls say which access patterns there are.
const kTransactions = { dram: "DRAM", l2: "L2", l1: "L1", global: "global memory", shared: "shared memory" };
const kWalls = {
  global: [["stride 0", 1], ["unit stride, 4 B", 1 / 4], ["unit stride, 8 B", 1 / 8], ["a sector a thread", 1 / 32]],
  shared: [["no bank conflict", 1], ["2-way", 1 / 2], ["32-way", 1 / 32]],
};
const instructionView = {
  title: "GPU instructions",
  levelNames: kTransactions,
  levels: () => levelsAmong(kTransactions, (point, level) => point.instructions?.levels[level]),
  has: (point, level) => point.instructions?.levels[level] !== undefined,
  x: (point, level) => {
    const { instructions, transactions } = point.instructions.levels[level];
    return instructions / transactions;
  },
  y: (point, level) => point.instructions.levels[level].instructions / point.seconds,
  roofs: (group) => {
    if (!(group.issue > 0)) return [];
    const level = state.level === "all" ? "" : state.level;
    const isDrawn = (roof) => roof.bandwidth && (level === "" || roof.level === level ||
      (roof.level === "l1" && (level === "global" || level === "shared")));
    const bytes = level === "shared" ? kWavefrontBytes : kSectorBytes;
    const slopes = group.roofs.filter(isDrawn).map((roof) => {
      const value = roof.value / bytes;
      const title = roof.level === "l1" && level !== "shared" ? "L1 DATA PATH" : roof.title;
      return { ...roofIn(roof, value, `${digits(value / 1e9)} GTXN/s`), title };
    });
    const issue = { name: "issue slots", isa: "issue", dtype: "issue", bandwidth: false, value: group.issue, q1: group.issue,
      q3: group.issue, text: `${digits(group.issue / 1e9)} GIPS` };
    return [...slopes, issue];
  },
  walls: () => kWalls[state.level] ?? [],
  xTitle: (level) => level === kTransactions.shared ? "shared loads and stores per wavefront of 128 B"
    : level === kTransactions.global ? "global loads and stores per sector of 32 B in L1"
      : `warp instructions per transaction of 32 B (${level})`,
  yTitle: "warp instructions a second",
  missing: (level) => `no counted instructions at ${level}`,
};

const kViews = { time: timeView, energy: energyView, instructions: instructionView };
const view = () => kViews[state.view];
const viewsWithPoints = () => Object.keys(kViews).filter((name) => name === "time" ||
  points.some((point) => point.group >= 0 && kViews[name].levels().some((level) => kViews[name].has(point, level))));
