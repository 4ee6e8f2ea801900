// Everything that an application needs for convolutions and the other ops. Include these where you use them: study.h
// (ceilings, memory loops), dlpack.h (needs DLPack's header), c.h (the C API), backend.h (plugins).
#pragma once

#include <gable/batch_plan.h>
#include <gable/choose.h>
#include <gable/device.h>
#include <gable/dtype.h>
#include <gable/error.h>
#include <gable/event.h>
#include <gable/ops.h>
#include <gable/oracle.h>
#include <gable/plan.h>
#include <gable/shape.h>
#include <gable/tensor.h>
#include <gable/version.h>
