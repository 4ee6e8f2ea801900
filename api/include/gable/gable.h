// Everything an application needs. dlpack.h (needs DLPack's header), c.h and backend.h are included by those who use
// them.
#pragma once

#include <gable/ceilings.h>
#include <gable/device.h>
#include <gable/dtype.h>
#include <gable/error.h>
#include <gable/event.h>
#include <gable/loops.h>
#include <gable/ops.h>
#include <gable/oracle.h>
#include <gable/plan.h>
#include <gable/shape.h>
#include <gable/tensor.h>
#include <gable/version.h>
